"""Tables of a comparison with published results, for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from atwu.experiments.published import PublishedTable
from atwu.experiments.study.compare import METRICS, value_of
from atwu.experiments.study.orderings import Ordering, Orderings
from atwu.report.records import Records
from atwu.report.values import ARROWS, MISSING, shown_interval, shown_number


def side_by_side_table(records: Records, published: PublishedTable) -> Table:
    """Ours and the published numbers: a line per label that both have, a pair of columns per common metric."""
    labels = [label for label in records.results if label in published.rows]
    metrics = [metric for metric in METRICS if metric in published.metrics]
    place = records.study.get("scale", {}).get("name", records.title)
    table = Table(title=Text(f"{place} beside: {published.title}"), title_justify="left", pad_edge=False)
    table.caption = Text(" ".join([*published.notes, "Published runs are of one seed."]))
    table.caption_justify = "left"
    table.add_column("", no_wrap=True)
    for metric in metrics:
        arrow = ARROWS[METRICS[metric][1]]
        table.add_column(Text(f"{metric}{arrow}\nhere"), justify="right")
        table.add_column(Text(f"{metric}{arrow}\npublished"), justify="right", style="dim")
    for label in labels:
        cells = []
        for metric in metrics:
            theirs = published.rows[label].get(metric)
            mark = " (!)" if (label, metric) in published.degraded else ""
            cells += [_ours(records, label, metric), MISSING if theirs is None else f"{theirs:g}{mark}"]
        table.add_row(Text(label), *cells)
    return table


def _ours(records: Records, label: str, metric: str) -> str:
    cell = value_of(records, metric, label)
    if cell is None:
        return MISSING
    return f"{shown_number(cell.value, cell.digits)} {shown_interval(cell)}".strip()


def ordering_table(metric: str, found: Orderings) -> Table:
    """Which published orderings hold here, pair by pair."""
    table = Table(title=Text(f"{metric}: {found.reading}"), title_justify="left", pad_edge=False)
    for column in ("published order", "published difference", "difference here", "verdict"):
        table.add_column(column, justify="right" if "difference" in column else "left")
    for pair in found.pairs:
        table.add_row(
            f"{pair.better} ahead of {pair.worse}",
            f"{pair.published:+.3g}",
            _interval(pair),
            Text(pair.outcome, "dim" if "noise" in pair.outcome or pair.outcome == "open" else "bold"),
        )
    return table


def _interval(pair: Ordering) -> str:
    if pair.ours is None:
        return MISSING
    value, low, high = pair.ours
    return f"{value:+.3g}" if low != low else f"{value:+.3g} [{low:+.3g}, {high:+.3g}]"
