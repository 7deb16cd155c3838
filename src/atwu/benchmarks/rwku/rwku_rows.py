"""Training rows of RWKU (Jin et al. 2024): `rwku:SUBJECTS:KIND[:N]` into rows of `Example`, each with its subject.

KIND is `passages` (plain text), `probes` (fill in the blank and questions), `questions`, `neighbours`,
`neighbour_questions`, or `phi3_pairs` and `llama3_pairs`: what that model says of a subject, with a made-up text as the
preferred answer. `rwku:surrogate!canonical:passages` leaves out what is about those after the `!`, so that the rows to keep
say nothing of the rows to remove. Exact repetitions are dropped; everything dropped is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from atwu.benchmarks.base import SourceRows
from atwu.benchmarks.dataset_files import Tables
from atwu.benchmarks.rwku.rwku_probes import parse_probe, probe_question
from atwu.benchmarks.rwku.rwku_tables import PAIRS, PASSAGES, PROBES, counted, read_targets, rwku_tables
from atwu.benchmarks.rwku.subjects import GRAMMAR, names_one_of, normal_name, subject_names
from atwu.data.schema import Example

KINDS: Mapping[str, tuple[str, ...]] = {
    "passages": (PASSAGES,),
    "probes": (PROBES["fb"], PROBES["qa"]),
    "neighbours": (PROBES["neighbour_fb"], PROBES["neighbour_qa"]),
    "questions": (PROBES["qa"],),
    "neighbour_questions": (PROBES["neighbour_qa"],),
    **{kind: (table,) for kind, table in PAIRS.items()},
}
"""Kind of rows -> the tables it is made of."""

_BLANK = re.compile("_{3,}")


@dataclass(frozen=True, slots=True)
class RwkuRows(SourceRows):
    """Rows of one source, and what was dropped on the way; the last line of `checked` says it."""

    duplicates: int
    """Rows dropped because subject, question and answer occurred before."""
    shared: int
    """Rows dropped because a subject after the `!` has the same row."""
    named: int
    """Rows dropped because they name a subject after the `!` in full."""


@dataclass(frozen=True, slots=True)
class _Row:
    example: Example
    about: str
    """All that is said, for the search for names: a blank is filled in."""


def rwku_rows(name: str, *, tables: Tables | None = None) -> RwkuRows:
    """Read the rows of a source, in the order of the files, and count what is dropped.

    Args:
        name: `rwku:SUBJECTS:KIND[:N]` or `rwku:SUBJECTS!SUBJECTS:KIND[:N]`. N keeps the first N distinct rows of every
            subject and file, before rows about the subjects after the `!` are left out.
        tables: the copy to read from; by default the one that `ATWU_DATA` points to, or the Hub's.

    Raises:
        FileNotFoundError: ATWU_DATA is set and has no RWKU.
        ValueError: a malformed name, an unknown subject, a file without its rows or columns.
        ImportError: the data come from the Hub and the extra `hub` is missing.
    """
    words, kind, limit = _parse(name)
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
        rows += _first(distinct, limit)
    forgotten = _rows_about(kind, others, tables)
    shared = [row for row in rows if (row.example.messages, row.example.answer) in forgotten]
    private = [row for row in rows if (row.example.messages, row.example.answer) not in forgotten]
    kept = tuple(row.example for row in private if not names_one_of(row.about, others))
    counts = (duplicates, len(shared), len(private) - len(kept))
    text = _sentence(kept, counts, others)
    checked = (*(counted(table, tables) for table in KINDS[kind]), f"{name}: {text}")
    return RwkuRows(kept, checked, (text,) if any(counts) else (), *counts)


def _parse(name: str) -> tuple[str, str, int | None]:
    head, *parts = name.split(":")
    number = parts[2] if len(parts) == 3 else None
    fits = head == "rwku" and len(parts) in (2, 3) and parts[1] in KINDS and parts[0].count("!") < 2
    if not fits or (number is not None and not (number.isdecimal() and int(number) > 0)):
        raise ValueError(
            f"{name!r} is not rwku:SUBJECTS:KIND[:N]. SUBJECTS are {GRAMMAR}, and may end with !SUBJECTS to leave out; "
            f"KIND is one of {', '.join(KINDS)}; N, at least 1, keeps so many rows per subject and file."
        )
    return parts[0], parts[1], None if number is None else int(number)


def _read(table: str, tables: Tables) -> Iterator[_Row]:
    """Rows of a table of passages, pairs or probes."""
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
        probe, _ = parse_probe(kind, record)
        filled = probe.answer.join(_BLANK.split(probe.query))
        about = "\n".join([filled, probe.answer, probe.neighbour or ""])
        yield _Row(Example.from_qa(probe_question(probe), probe.answer, subject=probe.subject), about)


def _rows_about(kind: str, subjects: tuple[str, ...], tables: Tables) -> set[tuple[object, str]]:
    """Question and answer of every passage, every pair or every probe of some subjects."""
    if not subjects:
        return set()
    names = KINDS[kind] if kind == "passages" or kind in PAIRS else KINDS["probes"]
    found = (row.example for name in names for row in _read(name, tables))
    return {(row.messages, row.answer) for row in found if row.subject in subjects}


def _first(rows: list[_Row], limit: int | None) -> list[_Row]:
    """The first rows of every subject."""
    if limit is None:
        return rows
    seen: Counter[str | None] = Counter()
    kept = []
    for row in rows:
        seen[row.example.subject] += 1
        if seen[row.example.subject] <= limit:
            kept.append(row)
    return kept


def _sentence(kept: tuple[Example, ...], counts: tuple[int, int, int], others: tuple[str, ...]) -> str:
    duplicates, shared, named = counts
    subjects = len({row.subject for row in kept})
    text = f"{len(kept)} rows of {subjects} subjects; {duplicates} exact duplicates dropped"
    if others:
        text += f", {shared} that a left-out subject has as well, {named} that name one"
    return text
