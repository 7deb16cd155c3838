"""Text of a verdict for a terminal of 80 columns: numbers, wrapped lines, and next steps that can be copied."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from atwu._file_reading import printable

VERDICT_WIDTH = 80
"""Columns of the printed verdict."""


def figure(value: float | None) -> str:
    """Return a number in at most six characters; empty for None."""
    if value is None:
        return ""
    size = abs(value)
    return (
        f"{value:.3f}"
        if size < 10
        else f"{value:.1f}"
        if size < 1000
        else f"{value:.0f}"
        if size < 1e5
        else f"{value:.0e}"
    )


def next_lines(steps: Sequence[str]) -> list[str]:
    """Return the next steps under a heading; a command stays on one line, to be copied."""
    if not steps:
        return []
    lines = [
        line
        for step in steps
        for line in ([f"  {step}"] if step.startswith(("atwu ", "llama-server ")) else wrap_item(step))
    ]
    return ["", "Next:", *lines]


def wrap_item(text: str) -> list[str]:
    """Wrap one entry of an indented list."""
    return wrap_text(text, "  ", "    ")


def wrap_text(text: str, first: str = "", rest: str = "") -> list[str]:
    """Wrap a text to the width of the verdict."""
    return textwrap.wrap(text, VERDICT_WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def shorten(text: str, width: int = 70) -> str:
    """Cut a text to one line of at most `width` characters, without control characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def retain_loss_sentence(increase: float, limit: float) -> str:
    """Say how much the loss on retained data rose, in nats/token."""
    if math.isnan(increase):
        return f"Loss on retained data is not a number any more (limit {limit:g} nats/token)."
    return f"Loss on retained data rose by {max(increase, 0):.3f} nats/token (limit {limit:g})."
