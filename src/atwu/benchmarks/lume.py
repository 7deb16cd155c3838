"""LUME (Ramakrishna et al. 2025): synthetic stories, synthetic people with private data, and real biographies.

Every document is asked in two forms: the beginning of a text to be continued, and one to five questions. The text is a
training row as a whole. Files are those of `amazon-science/lume-llm-unlearning`; the members and non-members of the
membership attack are only in the data of SemEval-2025 Task 4, which is the same benchmark.
"""

from __future__ import annotations

import re
from dataclasses import replace

from atwu.benchmarks.base import Benchmark, LoadedRows, Probe, Probes, name_parts, rows_to_measure
from atwu.benchmarks.dataset_files import DataSet, PublishedFile, Tables, open_tables
from atwu.data.schema import Example

LUME_TASKS = {"Task1": "stories", "Task2": "people", "Task3": "biographies"}
"""Task in the files -> what its documents are."""
LUME_SPLITS = ("forget", "retain")
LUME_FORMS = {"sc": "completion", "qa": "question"}
"""Ending of an id, before its number -> form."""
LUME_KINDS = tuple(
    f"{split}_{form}_{task}" for split in LUME_SPLITS for form in LUME_FORMS.values() for task in LUME_TASKS.values()
)
"""Kinds of probes whose means are the parts of the task aggregate."""
MEMBERS, NON_MEMBERS = "member", "nonmember"
"""Tables of the membership attack, and kinds of its probes."""

_ROW = ("id", "input", "output", "task")
LUME_DATA = DataSet(
    "LUME",
    "https://github.com/amazon-science/lume-llm-unlearning",
    {
        "forget": PublishedFile(2732, _ROW, on_hub=False),
        "retain": PublishedFile(2734, _ROW, on_hub=False),
        MEMBERS: PublishedFile(None, ("document",), on_hub=False),
        NON_MEMBERS: PublishedFile(None, ("document",), on_hub=False),
    },
    exact=False,
)
# An id is document, form and number, such as `...sc1`; the document may be in quotes.
_ID = re.compile(r'"?(?P<document>.+?)"?(?P<form>sc|qa)\d+')


def lume_rows(name: str) -> LoadedRows:
    """Read the rows of `lume:forget` or `lume:retain`, or with `:N` only the first N documents of each task."""
    split, count = name_parts(name, "lume:SPLIT", SPLIT=LUME_SPLITS)
    tables = open_tables(LUME_DATA)
    probes = _probes(tables, split, documents=count)
    return LoadedRows(tuple(map(_training_row, probes)), name, tables.incomplete())


def lume_benchmark(name: str) -> Benchmark:
    """Load `lume`, or `lume:N` with only the first N documents of each task and split."""
    (documents,) = name_parts(name, "lume")
    tables = open_tables(LUME_DATA)
    asked = {split: _probes(tables, split, documents=documents) for split in LUME_SPLITS}
    rows = {split: tuple(map(_training_row, of_split)) for split, of_split in asked.items()}
    forget, retain = (f"lume:{split}" for split in LUME_SPLITS)
    if documents:
        forget, retain = f"{forget}:{documents}", f"{retain}:{documents}"
    probes = [probe for of_split in asked.values() for probe in of_split]
    warnings = tables.incomplete()
    # Only the data of SemEval-2025 Task 4 have them.
    if tables.has(MEMBERS) and tables.has(NON_MEMBERS):
        for kind in (MEMBERS, NON_MEMBERS):
            probes += [Probe(kind, Example((), columns["document"])) for _, columns in tables.table(kind)]
    else:
        warnings += ("no members and non-members: no membership attack",)
    return Benchmark(
        name=name,
        forget_source=forget,
        retain_source=retain,
        full_source=f"{forget} + {retain}",
        retain_only_source=retain,
        forget=rows_to_measure(rows["forget"]),
        retain=rows_to_measure(rows["retain"]),
        pool=rows["retain"],
        probes=Probes("lume", tuple(probes)),
        warnings=warnings,
    )


def _probes(tables: Tables, split: str, *, documents: int | None) -> tuple[Probe, ...]:
    """Parse a split; at most `documents` documents of each task."""
    probes: list[Probe] = []
    seen: dict[str, set[str]] = {task: set() for task in LUME_TASKS}
    for where, columns in tables.table(split):
        parts, task = _ID.fullmatch(columns["id"]), columns["task"]
        if parts is None or task not in LUME_TASKS:
            raise ValueError(
                f"{where}: id {columns['id']!r:.60} must end in sc or qa and a number, and task {task!r:.20} be one of "
                f"{', '.join(LUME_TASKS)}."
            )
        document, form = parts["document"], LUME_FORMS[parts["form"]]
        if documents is not None and document not in seen[task] and len(seen[task]) >= documents:
            continue
        # A document is asked several times; the limit counts documents, not questions.
        seen[task].add(document)
        kind = f"{split}_{form}_{LUME_TASKS[task]}"
        if form == "question":
            probes.append(Probe(kind, Example.from_qa(columns["input"], columns["output"], subject=document)))
        else:
            text = Example((), columns["output"], subject=document)
            probes.append(Probe(kind, text, opening=columns["input"]))
    return tuple(probes)


def _training_row(probe: Probe) -> Example:
    """Return question and answer, or the whole text."""
    if probe.row.messages:
        return probe.row
    return replace(probe.row, answer=f"{probe.opening.rstrip()} {probe.row.answer}")
