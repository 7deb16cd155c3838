"""How far a judge agrees with labels or with another judge, for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from atwu.judge.agreement import Agreement


def agreement_table(found: Agreement, *, title: str) -> Table:
    """One line for all cases and one for each kind."""
    table = Table(title=Text(title), title_justify="left")
    for column in ("cases", "n", "unscored", "accuracy", "kappa", "false yes", "false no"):
        table.add_column(column, justify="left" if column == "cases" else "right")

    def line(name: str, part: Agreement, *, interval: bool) -> None:
        accuracy = "–" if part.accuracy is None else f"{part.accuracy:.3f}"
        if interval and part.interval is not None:
            low, high = part.interval
            accuracy += f" [{low:.3f}, {high:.3f}]"
        table.add_row(
            name,
            str(part.n),
            str(part.unscored),
            accuracy,
            f"{part.kappa:.3f}" if interval and part.kappa is not None else "",
            str(part.false_positives),
            str(part.false_negatives),
        )

    line("all", found, interval=True)
    table.add_section()
    for kind, part in found.kinds.items():
        line(kind, part, interval=False)
    return table
