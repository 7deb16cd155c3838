"""What linear probes found, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from atwu.evaluation.probe import ProbeResult

_READING = (
    "How to read it: mean ± deviation over answers; 1 ranks every secret token first, 0.5 is chance. Held-out answers are "
    "about subjects the probe was not trained on; a much higher train AUROC means it learned its rows by heart."
)


def print_probe(console: Console, results: Sequence[ProbeResult], *, title: str) -> None:
    """Print the table and how to read it."""
    console.print(probe_table(results, title=title))
    console.print(_READING, highlight=False, soft_wrap=True)


def probe_table(results: Sequence[ProbeResult], *, title: str) -> Table:
    """One line per layer and position; the best printed held-out value is bold, ties included."""
    table = Table(title=Text(title), title_justify="left")
    for column in ("layer", "position"):
        table.add_column(column, no_wrap=True)
    for column in ("held-out AUROC ↑", "train AUROC", "rows"):
        table.add_column(column, justify="right", no_wrap=True)
    best = max(f"{result.auroc.mean:.3f}" for result in results)
    for place, result in enumerate(results):
        mean = f"{result.auroc.mean:.3f}"
        train = "–" if result.train_auroc is None else f"{result.train_auroc:.3f}"
        table.add_row(
            *(str(result.layer), result.position, f"{mean} ± {result.auroc.std:.3f}", train, str(result.auroc.n)),
            style="bold" if mean == best else None,
            end_section=place + 1 < len(results) and results[place + 1].layer != result.layer,
        )
    return table
