"""The headline table of a report as data: one row per method, one column per metric, marked; text formats print it.

Best and second best among the unlearned models, and general abilities that were materially lost, as in the ATWU paper. The
budget of the tuning is part of every table, since a comparison means little without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from atwu.evaluation.panel.warn import degraded
from atwu.evaluation.result import Direction, EvalResult, MetricValue
from atwu.report.panel import HEADLINE, OVERALL, Line, Mark, cell_of, marks_of, seeds_told
from atwu.report.records import ROLES, Records
from atwu.report.studies import NO_BUDGET, reasons
from atwu.report.tables import MISSING, known, shown_number
from atwu.training.card import public_text

_LONGEST = 100
"""Characters of a reason in a caption."""

_AFTERWARDS: tuple[tuple[Line, ...], ...] = (
    ((OVERALL, "model_utility"),),
    ((OVERALL, "mia_auc_min_k"), (OVERALL, "mia_auc_loss")),
    (("forget", "auroc_scorer"),),
    ((OVERALL, "forget_all_official"), (OVERALL, "forget_all_port")),
    ((OVERALL, "neighbour_all_official"), (OVERALL, "neighbour_all_port")),
    ((OVERALL, "N_delta_official"), (OVERALL, "N_delta_port")),
)
"""What follows the paper's panel: of each group the first that was measured."""

_SHORT: Mapping[Line, tuple[str, str]] = {
    ("forget", "extraction_strength"): ("ES_F", r"ES$_F$"),
    ("retain", "extraction_strength"): ("ES_R", r"ES$_R$"),
    (OVERALL, "ES_delta"): ("ES_Δ", r"ES$_\Delta$"),
    ("forget", "J_P"): ("J_P", r"J$_P$"),
    ("forget", "J_ICR"): ("J_ICR", r"J$_{ICR}$"),
    ("forget", "J_W"): ("J_W", r"J$_W$"),
    ("retain", "J_AVG"): ("J_AVG", r"J$_{AVG}$"),
    (OVERALL, "FQ"): ("FQ", "FQ"),
    (OVERALL, "RD"): ("RD", "RD"),
    (OVERALL, "UQ"): ("UQ", "UQ"),
    ("instructions", "repetitiveness"): ("Rep.", "Rep."),
    ("instructions", "win_rate"): ("WR", "WR"),
    (OVERALL, "model_utility"): ("MU", "MU"),
    (OVERALL, "mia_auc_min_k"): ("MIA min-k", "MIA min-$k$"),
    (OVERALL, "mia_auc_loss"): ("MIA loss", "MIA loss"),
    ("forget", "auroc_scorer"): ("AUROC scorer", "AUROC"),
    (OVERALL, "forget_all_official"): ("targets (official)", ""),
    (OVERALL, "forget_all_port"): ("targets (port)", ""),
    (OVERALL, "neighbour_all_official"): ("neighbours (official)", ""),
    (OVERALL, "neighbour_all_port"): ("neighbours (port)", ""),
    (OVERALL, "N_delta_official"): ("N_Δ (official)", r"N$_\Delta$ (official)"),
    (OVERALL, "N_delta_port"): ("N_Δ (port)", r"N$_\Delta$ (port)"),
}
"""Line -> name in a column head, plain and as LaTeX."""


@dataclass(frozen=True, slots=True)
class Column:
    """One metric."""

    line: Line
    name: str
    latex: str
    """Name as LaTeX, not escaped further; empty where `name` will do."""
    direction: Direction


@dataclass(frozen=True, slots=True)
class TableCell:
    """One number as printed."""

    number: str
    spread: str = ""
    """Standard deviation over seeds."""
    interval: tuple[str, str] | None = None
    mark: Mark | None = None
    seeds: str = ""
    """Such as `2 of 3 seeds`, where not all runs have a value; such a number is not ranked."""

    @property
    def text(self) -> str:
        """The number, and what it is the mean of where that is not all runs."""
        return f"{self.number} ({self.seeds})" if self.seeds else self.number


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One model."""

    name: str
    reference: bool
    cells: tuple[TableCell, ...]


@dataclass(frozen=True, slots=True)
class MethodTable:
    """Rows, and everything that must be said beside them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[MethodRow, ...]
    """References first."""
    counts: str
    """Rows measured and seeds."""
    budget: str
    notes: tuple[str, ...]
    """A sentence per degraded ability."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Runs and methods that are missing, and why."""
    progress: str = ""
    """How far a study is that is still going on."""

    def has(self, mark: Mark) -> bool:
        """Whether any cell has a mark."""
        return any(cell.mark == mark for row in self.rows for cell in row.cells)

    @property
    def intervals(self) -> bool:
        """Whether any cell has an interval."""
        return any(cell.interval is not None for row in self.rows for cell in row.cells)

    @property
    def spreads(self) -> bool:
        """Whether any cell is a mean over seeds."""
        return any(cell.spread for row in self.rows for cell in row.cells)


def headline_lines(records: Records) -> list[Line]:
    """What the headline table shows: the paper's panel, then utility, membership, learned scores and RWKU's difference.

    Args:
        records: finished runs.

    Returns:
        The lines that some model has a value on.
    """
    results = records.results.values()

    def there(line: Line) -> bool:
        return any(known(cell_of(result, line)) for result in results)

    found = [line for line in HEADLINE if there(line)]
    return found + [line for group in _AFTERWARDS for line in [line for line in group if there(line)][:1]]


def budget_of(records: Records) -> str:
    """What the compared values were tuned with."""
    return str(records.study.get("budget") or NO_BUDGET).rstrip(".")


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


def method_table(records: Records, lines: Sequence[Line] | None = None) -> MethodTable:
    """Lay out the table.

    Args:
        records: finished runs.
        lines: columns; those of `headline_lines` by default.
    """
    lines = list(headline_lines(records) if lines is None else lines)
    results = records.results
    runs = {label: len(records.of(label)) for label in records.labels}
    marks = marks_of(results, lines, runs=runs)
    names = [*(role for role in ROLES if role in results), *records.labels]
    notes = [
        f"{name}: {sentence}"
        for name in records.labels
        for split, metric, sentence in degraded(results[name], results.get("original"))
        if (split, metric) in lines
    ]
    return MethodTable(
        title=records.title,
        columns=tuple(_column(results, line) for line in lines),
        rows=tuple(
            MethodRow(
                name,
                name in ROLES,
                tuple(
                    _cell(cell_of(results[name], line), marks.get((name, line)), runs.get(name, 1)) for line in lines
                ),
            )
            for name in names
        ),
        counts=_counts(records, lines),
        budget=budget_of(records),
        notes=tuple(notes),
        left_out=tuple(left_out(records).items()),
        progress=str(records.study.get("progress") or ""),
    )


def caption_of(table: MethodTable, marks: Mapping[Mark, str], *, intervals: bool, spreads: bool = True) -> list[str]:
    """What must be known to read the table, one sentence each, without their full stops.

    Args:
        table: as printed.
        marks: what each mark looks like; those that no cell has are left out.
        intervals: whether they are printed.
        spreads: whether standard deviations over seeds are printed.
    """
    parts = [table.title.rstrip("."), f"Rows: {table.counts}"]
    if table.spreads:
        parts.append("Numbers are means over seeds" + (", ± their standard deviation" if spreads else ""))
    if intervals and table.intervals:
        parts.append("In brackets: 95 % bootstrap intervals, subjects drawn with replacement")
    said = [text for mark, text in marks.items() if table.has(mark)]
    if said:
        parts.append(", ".join(said).capitalize())
    if table.progress:
        parts.append(table.progress)
    if table.left_out:
        parts.append(f"Left out: {spoken(table.left_out)}")
    parts.append(f"Tuning budget: {table.budget}")
    return parts


def _column(results: Mapping[str, EvalResult], line: Line) -> Column:
    cells = [cell for result in results.values() if (cell := cell_of(result, line)) is not None]
    name, latex = _SHORT.get(line, (" ".join(line), ""))
    return Column(line, name, latex, cells[0].direction if cells else "none")


def _cell(cell: MetricValue | None, mark: Mark | None, runs: int) -> TableCell:
    if cell is None or not known(cell):
        return TableCell(MISSING)
    interval = None
    if cell.low is not None and cell.high is not None:
        interval = shown_number(cell.low, cell.digits), shown_number(cell.high, cell.digits)
    spread = "" if cell.seed_std is None else shown_number(cell.seed_std, cell.digits)
    return TableCell(shown_number(cell.value, cell.digits), spread, interval, mark, seeds_told(cell, runs))


def _counts(records: Records, lines: Sequence[Line]) -> str:
    """Rows of every set that a column is about, and seeds."""
    rows: dict[str, list[int]] = {}
    for result in records.results.values():
        for line in lines:
            cell = cell_of(result, line)
            if line[0] != OVERALL and known(cell):
                assert cell is not None
                rows.setdefault(line[0], []).append(cell.n)
    counts = [f"{name} n={_range(found)}" for name, found in rows.items()]
    seeds = [len(records.of(label)) for label in records.labels]
    return ", ".join([*counts, f"seeds: {_range(seeds)}"])


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers, default=0), max(numbers, default=0)
    return str(low) if low == high else f"{low}–{high}"
