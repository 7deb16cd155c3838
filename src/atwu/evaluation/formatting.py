"""Format results: numbers, plain text for a terminal, a data frame, and an HTML table for notebooks."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from atwu.evaluation.columns import FORGET, OVERALL

if TYPE_CHECKING:
    import pandas as pd

    from atwu.evaluation.result import Direction, EvalResult, MetricValue

ARROWS: dict[Direction, str] = {"up": " ↑", "down": " ↓", "none": ""}
FIELDS = ("value", "low", "high", "n", "direction", "std", "clusters", "skipped", "unscored", "seeds", "seed_std")
"""Columns of the data frame, after set and metric."""
TERMINAL_WIDTH = 80
"""Line width of the text output in characters."""


def format_number(value: float | None, digits: int) -> str:
    """Format a number; zero has no minus sign."""
    shown = f"{value:.{digits}f}"
    return shown[1:] if shown.startswith("-") and not shown.strip("-0.") else shown


def format_interval(cell: MetricValue) -> str:
    """Return `[low, high]`, or "" if the value has no interval."""
    if cell.low is None or cell.high is None:
        return ""
    return f"[{format_number(cell.low, cell.digits)}, {format_number(cell.high, cell.digits)}]"


def measured_numbers(result: EvalResult) -> Iterator[tuple[str, str, MetricValue]]:
    """Yield (set, metric, value) of every defined value, set by set, aggregate metrics last."""
    for split, values in [*result.sets.items(), (OVERALL, result.overall)]:
        for metric, value in values.items():
            if value.value is not None and not math.isnan(value.value):
                yield split, metric, value


def result_frame(result: EvalResult) -> pd.DataFrame:
    """Return one row per value: set, metric, then `FIELDS`."""
    import pandas as pd

    rows = [
        {"set": split, "metric": metric} | {name: getattr(value, name) for name in FIELDS}
        for split, metric, value in measured_numbers(result)
    ]
    return pd.DataFrame(rows, columns=("set", "metric", *FIELDS))


def result_text(result: EvalResult) -> str:
    """Return every value with its interval, and the warnings, as text of 80 columns."""
    found = [(split, metric + ARROWS[value.direction], value) for split, metric, value in measured_numbers(result)]
    width = max((len(name) for _, name, _ in found), default=0) + 2
    lines, last = [result.model], ""
    for split, name, value in found:
        if split != last:
            rows = f" ({value.n} rows{', lower is better' if split == FORGET else ''})" if split != OVERALL else ""
            lines += ["", f"{split + rows:<{width}}{'value':>9}  95 % interval"]
            last = split
        number = format_number(value.value, value.digits)
        lines.append(f"  {name:<{width - 2}}{number:>9}  {format_interval(value)}".rstrip())
    for warning in result.warnings:
        lines += ["", *textwrap.wrap(f"warning: {warning}", TERMINAL_WIDTH)]
    return "\n".join(lines)


def result_html(result: EvalResult) -> str:
    """Return every value as an HTML table."""
    rows = "".join(
        f"<tr><th>{html.escape(split)}</th><td>{html.escape(metric + ARROWS[value.direction])}</td>"
        f"<td>{format_number(value.value, value.digits)}</td><td>{format_interval(value)}</td><td>{value.n}</td></tr>"
        for split, metric, value in measured_numbers(result)
    )
    notes = "".join(f"<p>warning: {html.escape(warning)}</p>" for warning in result.warnings)
    head = "".join(f"<th>{name}</th>" for name in ("set", "metric", "value", "95 % interval", "rows"))
    title = html.escape(result.model)
    return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"
