"""Models by lines: what every printed table lays out, and what must be said beside it.

The budget of the tuning is part of every table of methods, since a comparison means little without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.result import Direction, EvalResult
from atwu.evaluation.warn import degraded
from atwu.report.frame import lines_of, tidy
from atwu.report.names import HEADLINE, head_name
from atwu.report.records import Records
from atwu.report.studies import NO_BUDGET, reasons
from atwu.report.values import ARROWS, REFERENCES, Line, Mark
from atwu.training.card import public_text

_LONGEST = 100
"""Characters of a reason in a caption."""


@dataclass(frozen=True, slots=True)
class Head:
    """What stands at the head of a line."""

    line: Line
    name: str
    direction: Direction
    count: str
    """Rows it was measured on, as a range where models differ."""

    @property
    def text(self) -> str:
        """Short name and arrow."""
        return self.name + ARROWS[self.direction]

    @property
    def full(self) -> str:
        """Set, metric and arrow, as in the data."""
        return " ".join(self.line) + ARROWS[self.direction]


@dataclass(frozen=True)
class Table:
    """Some lines of some models."""

    frame: pd.DataFrame
    """`tidy` numbers of these lines."""
    lines: list[Line]
    labels: Sequence[str]
    names: Mapping[Line, str] = field(default_factory=dict)
    """What lines are called, where that is not `head_name`."""

    def only(self, lines: Sequence[Line]) -> Table:
        """The same with some lines, in this order."""
        there = pd.MultiIndex.from_frame(self.frame[["set", "metric"]]).isin(lines) if lines else slice(0)
        return replace(self, frame=self.frame[there], lines=list(lines))

    @cached_property
    def heads(self) -> list[Head]:
        """One per line."""
        found: dict[Line, pd.DataFrame] = dict(iter(self.frame.groupby(["set", "metric"])))
        heads = []
        for line in self.lines:
            rows = found.get(line)
            direction: Direction = "none" if rows is None else rows.direction.iloc[0]
            count = "0" if rows is None else span(rows.n)
            heads.append(Head(line, self.names.get(line) or head_name(line), direction, count))
        return heads

    def cells(self, write: Callable[[Any], Any], missing: Any = "") -> pd.DataFrame:
        """One row per model, one column per line.

        Args:
            write: row of the frame -> what is printed.
            missing: what stands where there is no number.
        """
        written = pd.Series([write(cell) for cell in self.frame.itertuples()], self.frame.index, dtype=object)
        wide = self.frame.assign(written=written).pivot(index="label", columns=["set", "metric"], values="written")
        wide = wide.reindex(
            index=list(self.labels), columns=pd.MultiIndex.from_tuples(self.lines, names=["set", "metric"])
        )
        return wide.map(lambda cell: missing if isinstance(cell, float) else cell)  # NaN where the pivot found nothing

    def caption(self, marks: Mapping[Mark, str], *, intervals: bool = True, spreads: bool = True) -> list[str]:
        """What must be known to read it, one sentence each, without their full stops.

        Args:
            marks: what each mark looks like; those that no cell has are left out.
            intervals: whether they are printed.
            spreads: whether standard deviations over seeds are printed.
        """
        said = []
        if (self.frame.spread != "").any():
            said.append("Numbers are means over seeds" + (", ± their standard deviation" if spreads else ""))
        if intervals and (self.frame.interval != "").any():
            said.append("In brackets: 95 % bootstrap intervals, subjects drawn with replacement")
        shown = [text for mark, text in marks.items() if (self.frame.mark == mark).any()]
        return said + ([", ".join(shown).capitalize()] if shown else [])


def table_of(
    results: Mapping[str, EvalResult],
    lines: Sequence[Line] | None = None,
    *,
    references: Collection[str] = REFERENCES,
    runs: Mapping[str, int] | None = None,
) -> Table:
    """The table of some results.

    Args:
        results: model name -> result.
        lines: in order; every line by default.
        references: names of models that are not ranked.
        runs: model name -> runs it is the mean of.
    """
    frame = tidy(results, references=references, runs=runs)
    table = Table(frame, lines_of(frame), list(results))
    return table if lines is None else table.only(lines)


def whole_table(records: Records) -> Table:
    """Every line of a report; of several seeds the mean."""
    return table_of(records.results, runs={label: len(records.of(label)) for label in records.labels})


def report_table(records: Records, lines: Sequence[Line] | None = None) -> Table:
    """Some lines of a report; those of `headline_lines` by default."""
    return whole_table(records).only(headline_lines(records) if lines is None else lines)


def headline_lines(records: Records) -> list[Line]:
    """What the headline table shows: the paper's panel, then utility, membership, learned scores and RWKU's difference."""
    there = whole_table(records).lines
    return [line for group in HEADLINE for line in [line for line in group if line in there][:1]]


def said_of(records: Records, table: Table, marks: Mapping[Mark, str], **shown: bool) -> list[str]:
    """The caption of a report's table: as `Table.caption`, with its title, rows, what is missing, and the tuning's budget."""
    frame = table.frame[table.frame.set != OVERALL]
    rows = [f"{split} n={span(part.n)}" for split, part in frame.groupby("set", sort=False)]
    order = {split: place for place, (split, _) in reversed(list(enumerate(table.lines)))}
    rows.sort(key=lambda told: order[told.partition(" n=")[0]])
    rows.append(f"seeds: {span([len(records.of(label)) for label in records.labels])}")
    left = left_out(records)
    return [
        records.title.rstrip("."),
        f"Rows: {', '.join(rows)}",
        *table.caption(marks, **shown),
        *([str(records.study["progress"])] if records.study.get("progress") else []),
        *([f"Left out: {spoken(left.items())}"] if left else []),
        f"Tuning budget: {str(records.study.get('budget') or NO_BUDGET).rstrip('.')}",
    ]


def notes_of(records: Records, table: Table) -> list[str]:
    """A sentence per general ability that a method lost, of those in the table."""
    results = records.results
    return [
        f"{name}: {sentence}"
        for name in records.labels
        for split, metric, sentence in degraded(results[name], results.get("original"))
        if (split, metric) in table.lines
    ]


def left_out(records: Records) -> dict[str, str]:
    """Runs that failed and methods that the rows do not allow, and why, as `study.json` tells it."""
    found = reasons(records.study, "failed") | reasons(records.study, "left_out")
    return {name: public_text(" ".join(reason.split())).rstrip(".") for name, reason in found.items()}


def spoken(left: Iterable[tuple[str, str]]) -> str:
    """What `left_out` found in one line: `atwu-s1 (diverged), dpo (needs questions)`."""
    short = (
        (name, reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 1].rstrip()}…") for name, reason in left
    )
    return ", ".join(f"{name} ({reason})" if reason else name for name, reason in short)


def span(numbers: Iterable[int]) -> str:
    """`38–40`, or one number where all are equal."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    return str(low) if low == high else f"{low}–{high}"
