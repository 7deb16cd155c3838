"""LUME (Ramakrishna et al. 2025): synthetic stories, synthetic people with private data, and real biographies.

Every document is asked in two forms: the beginning of a text to be continued, and one to five questions. The text is a
training row as a whole. Files are those of `amazon-science/lume-llm-unlearning`; the members and non-members of the
membership attack are only in the data of SemEval-2025 Task 4, which is the same benchmark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from atwu.benchmarks.base import Benchmark, LoadedRows, Probe, Probes, name_parts, rows_to_measure, whole_number
from atwu.benchmarks.dataset_files import DataSet, PublishedFile, Tables, open_tables
from atwu.data.records import Record
from atwu.data.schema import Example

LumeForm = Literal["completion", "question"]

LUME_TASKS = {"Task1": "stories", "Task2": "people", "Task3": "biographies"}
"""Task in the files -> what its documents are."""
LUME_SPLITS = ("forget", "retain")
LUME_FORMS: dict[str, LumeForm] = {"sc": "completion", "qa": "question"}
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
_ID = re.compile(r'"?(?P<document>.+?)"?(?P<form>sc|qa)\d+')


@dataclass(frozen=True, slots=True)
class LumeRow:
    task: str
    form: LumeForm
    document: str
    given: str
    """Beginning of the text, or the question."""
    answer: str
    """Rest of the text, or the answer."""

    def example(self) -> Example:
        """As a training row: the whole text, or question and answer; its subject is the document."""
        if self.form == "question":
            return Example.from_qa(self.given, self.answer, subject=self.document)
        return Example((), f"{self.given.rstrip()} {self.answer}", subject=self.document)

    def probe(self, split: str) -> Probe:
        """As a probe of the evaluation."""
        kind = f"{split}_{self.form}_{LUME_TASKS[self.task]}"
        if self.form == "question":
            return Probe(kind, self.example())
        return Probe(kind, Example((), self.answer, subject=self.document), opening=self.given)


def lume_rows(name: str) -> LoadedRows:
    """Read the rows of `lume:forget` or `lume:retain`, or with `:N` only the first N documents of each task."""
    split, count = name_parts(name, "lume:SPLIT", SPLIT=LUME_SPLITS)
    tables = open_tables(LUME_DATA)
    rows = _rows(tables, split, documents=whole_number(name, "documents", count))
    documents = len({row.document for row in rows})
    checked = f"{split}: {len(rows)} rows of {documents} documents"
    return LoadedRows(tuple(row.example() for row in rows), name, tables.incomplete(), (checked,))


def lume_benchmark(name: str) -> Benchmark:
    """Load `lume`, or `lume:N` with only the first N documents of each task and split."""
    (count,) = name_parts(name, "lume")
    documents, tables = whole_number(name, "documents", count), open_tables(LUME_DATA)
    found = {split: _rows(tables, split, documents=documents) for split in LUME_SPLITS}
    rows = {split: tuple(row.example() for row in each) for split, each in found.items()}
    forget, retain = (f"lume:{split}" + (f":{count}" if count else "") for split in LUME_SPLITS)
    probes = [row.probe(split) for split, each in found.items() for row in each]
    attacked = tables.has(MEMBERS) and tables.has(NON_MEMBERS)
    for kind in (MEMBERS, NON_MEMBERS) if attacked else ():
        probes += [Probe(kind, Example((), columns["document"])) for _, columns in tables.table(kind)]
    counts = (
        f"{split}: {len(each)} rows of {len({row.document for row in each})} documents" for split, each in found.items()
    )
    attack = "members and non-members found" if attacked else "no members and non-members: no membership attack"
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
        checked=(*counts, attack, *tables.incomplete()),
    )


def _rows(tables: Tables, split: str, *, documents: int | None) -> tuple[LumeRow, ...]:
    """Parse a split; at most `documents` documents of each task."""
    rows, seen = list[LumeRow](), {task: set[str]() for task in LUME_TASKS}
    for row in map(_parsed, tables.table(split)):
        known = seen[row.task]
        if documents is None or row.document in known or len(known) < documents:
            known.add(row.document)
            rows.append(row)
    return tuple(rows)


def _parsed(record: Record) -> LumeRow:
    where, columns = record
    found = _ID.fullmatch(columns["id"])
    if found is None or columns["task"] not in LUME_TASKS:
        raise ValueError(
            f"{where}: id {columns['id']!r:.60} must end in sc or qa and a number, and task {columns['task']!r:.20} be one of "
            f"{', '.join(LUME_TASKS)}."
        )
    return LumeRow(columns["task"], LUME_FORMS[found["form"]], found["document"], columns["input"], columns["output"])
