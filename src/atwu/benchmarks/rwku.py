"""RWKU (Jin et al. 2024): training rows of `rwku:SUBJECTS:KIND[:N]` with their subject, and the benchmark.

KIND is `passages` (plain text), `probes` (fill in the blank and questions), `questions`, `neighbours`,
`neighbour_questions`, or `phi3_pairs` and `llama3_pairs`: text of that model about a subject, with a fabricated text as the
preferred answer. `rwku:surrogate!canonical:passages` drops rows about the subjects after the `!`, so that the retain set
does not mention the forget set. Exact duplicates are dropped, and all dropped rows are counted.

The benchmark `rwku` is the batch protocol of the ATWU paper: ten forget subjects are unlearned together, and ten other
subjects serve as the retain set.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from atwu.benchmarks.base import Benchmark, SourceRows, name_parts, whole_number
from atwu.benchmarks.dataset_files import Tables
from atwu.benchmarks.rwku_probes import (
    CAPS,
    GRAMMAR,
    PAIRS,
    PASSAGES,
    PROBES,
    TARGETS,
    counted,
    load_probes,
    names_one_of,
    normal_name,
    parse_probe,
    read_targets,
    rwku_tables,
    subject_names,
)
from atwu.benchmarks.subsample import evenly_spaced
from atwu.data.schema import Example

KINDS: Mapping[str, tuple[str, ...]] = {
    "passages": (PASSAGES,),
    "probes": (PROBES["fb"], PROBES["qa"]),
    "neighbours": (PROBES["neighbour_fb"], PROBES["neighbour_qa"]),
    "questions": (PROBES["qa"],),
    "neighbour_questions": (PROBES["neighbour_qa"],),
    **{kind: (table,) for kind, table in PAIRS.items()},
}
"""Kind of rows -> its tables."""

_BLANK = re.compile("_{3,}")


@dataclass(frozen=True, slots=True)
class _Row:
    example: Example
    about: str
    """All text of the row, with blanks filled in, for the name search."""


def rwku_rows(name: str, *, tables: Tables | None = None) -> SourceRows:
    """Read the rows of a source in file order, and count the rows dropped.

    Args:
        name: `rwku:SUBJECTS:KIND[:N]` or `rwku:SUBJECTS!SUBJECTS:KIND[:N]`. N keeps the first N distinct rows of every
            subject and file, before rows about the subjects after the `!` are dropped.
    """
    words, kind, count = name_parts(name, "rwku:SUBJECTS:KIND", KIND=KINDS)
    limit = None if count is None else whole_number(name, "rows per subject and file", count)
    tables = rwku_tables() if tables is None else tables
    published = read_targets(tables)
    wanted, _, left_out = words.partition("!")
    subjects = subject_names(wanted, published)
    others = subject_names(left_out, published) if left_out else ()

    rows: list[_Row] = []
    duplicates = 0
    for table in KINDS[kind]:
        every = [row for row in _read(table, tables) if row.example.subject in subjects]
        distinct = list({row.example: row for row in every}.values())
        duplicates += len(every) - len(distinct)
        seen: Counter[str | None] = Counter()
        for row in distinct:
            seen[row.example.subject] += 1
            if limit is None or seen[row.example.subject] <= limit:
                rows.append(row)
    forgotten = _rows_about(kind, others, tables)
    shared = [row for row in rows if (row.example.messages, row.example.answer) in forgotten]
    private = [row for row in rows if (row.example.messages, row.example.answer) not in forgotten]
    kept = tuple(row.example for row in private if not names_one_of(row.about, others))
    named = len(private) - len(kept)
    text = f"{len(kept)} rows of {len({row.subject for row in kept})} subjects; {duplicates} exact duplicates dropped"
    if others:
        text += f", {len(shared)} shared with an excluded subject, {named} that name one"
    checked = (*(counted(table, tables) for table in KINDS[kind]), f"{name}: {text}")
    return SourceRows(kept, checked, (text,) if duplicates or shared or named else ())


def _read(table: str, tables: Tables) -> Iterator[_Row]:
    """Iterate over the rows of a table of passages, pairs or probes."""
    if table == PASSAGES:
        for _, row in tables.table(table):
            yield _Row(Example((), row["text"], subject=normal_name(row["subject"])), row["text"])
        return
    if table in PAIRS.values():
        for _, row in tables.table(table):
            made_up, true = row["response"]
            pair = Example.from_qa(row["prompt"], true, alternate=made_up, subject=normal_name(row["subject"]))
            yield _Row(pair, "\n".join([row["prompt"], true, made_up]))
        return
    (kind,) = (kind for kind, name in PROBES.items() if name == table)
    for record in tables.table(table):
        probe = parse_probe(kind, record)
        answer = probe.row.answer
        filled = answer.join(_BLANK.split(probe.row.question))
        about = "\n".join([filled, answer, record[1].get("neighbor") or ""])
        yield _Row(Example(probe.messages, answer, subject=probe.row.subject), about)


def _rows_about(kind: str, subjects: tuple[str, ...], tables: Tables) -> set[tuple[object, str]]:
    """Return question and answer of all passages, pairs or probes of some subjects."""
    if not subjects:
        return set()
    names = KINDS[kind] if kind == "passages" or kind in PAIRS else KINDS["probes"]
    found = (row.example for name in names for row in _read(name, tables))
    return {(row.messages, row.answer) for row in found if row.subject in subjects}


BATCH = "canonical/surrogate"
"""Subjects of the batch protocol."""


def rwku_benchmark(name: str) -> Benchmark:
    """Load the benchmark.

    Args:
        name: `rwku` (the batch protocol), `rwku:FORGET/RETAIN`, or `rwku:FORGET/RETAIN:N` with at most N passages per
            subject; FORGET and RETAIN name subjects as in `rwku:` sources, such as `canonical` or `first20`.
    """
    sides, limit = name_parts(name if ":" in name else f"{name}:{BATCH}", "rwku:FORGET/RETAIN")
    forget, _, retain = sides.partition("/")
    if not forget or not retain or "!" in sides:
        raise ValueError(f"{name!r} is not rwku or rwku:FORGET/RETAIN[:N]; FORGET and RETAIN are {GRAMMAR}.")
    if limit is not None:
        whole_number(name, "passages per subject", limit)
    tables = rwku_tables()
    published = read_targets(tables)
    subjects = subject_names(forget, published)
    if shared := sorted(set(subjects) & set(subject_names(retain, published))):
        raise ValueError(
            f"{', '.join(shared)} cannot be in both the forget and the retain set; give disjoint subjects."
        )
    both = f"{forget}|{retain}"
    passages = "passages" + (f":{limit}" if limit else "")
    sources = {
        "forget": [f"rwku:{forget}:{passages}"],
        "retain": [f"rwku:{retain}!{forget}:{passages}"],
        "full": [f"rwku:{both}:{passages}", f"rwku:{both}:probes", f"rwku:{both}:neighbours"],
        "retain-only": [
            f"rwku:{retain}!{forget}:{passages}",
            f"rwku:{retain}!{forget}:probes",
            f"rwku:{both}!{forget}:neighbours",
        ],
    }

    def read(source: str) -> SourceRows:
        return rwku_rows(source, tables=tables)

    questions = read(f"rwku:{forget}:questions")
    kept_questions = read(f"rwku:{forget}!{forget}:neighbour_questions")
    pool = read(f"rwku:{both}!{forget}:neighbour_questions")
    probes = load_probes(tables, subjects=subjects)
    trained = [read(source) for parts in sources.values() for source in parts]
    return Benchmark(
        name=name,
        forget_source=" + ".join(sources["forget"]),
        retain_source=" + ".join(sources["retain"]),
        full_source=" + ".join(sources["full"]),
        retain_only_source=" + ".join(sources["retain-only"]),
        forget=evenly_spaced(questions.rows, CAPS["qa"]),
        retain=evenly_spaced(kept_questions.rows, CAPS["neighbour_qa"]),
        pool=pool.rows,
        probes=probes,
        checked=tuple(
            dict.fromkeys(
                [
                    *(counted(name, tables) for name in (TARGETS, *PROBES.values(), PASSAGES)),
                    *(source.checked[-1] for source in (questions, kept_questions, pool, *trained)),
                    f"probes: {len(probes.probes)} of {len(probes.subjects)} subjects; "
                    f"{sum(probes.duplicates.values())} exact duplicates dropped, {sum(probes.left_out.values())} above the "
                    "limit per kind",
                ]
            )
        ),
    )
