"""What a model says as a table that a layman reads: question, what the model says, in how many askings it says the same."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from atwu._file_reading import printable
from atwu.data.schema import Example
from atwu.request.asking.asked_facts import AskedFact

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_WIDTH = 110
"""Characters of a line where the width of the terminal is not known; most answers fit beside their question."""


def facts_table(facts: Sequence[AskedFact], *, compared_model: str | None = None) -> Table:
    """Return facts as a table.

    Args:
        compared_model: name of a second model that was asked the same.
    """
    from rich.table import Column, Table

    heads = ["question", "what the model says", "the same answer in"]
    if compared_model is not None:
        heads += [f"what {compared_model} says", "the same as the first"]
    table = Table(*(Column(head, overflow="fold") for head in heads), box=None, pad_edge=False)
    for fact in facts:
        table.add_row(*_cells(fact, compared=compared_model is not None))
    return table


def _in_bold(row: Example) -> Text:
    """Return an answer with its fact in bold."""
    from rich.text import Text

    text = Text()
    end = 0
    for start, stop in row.forget_spans or ():
        text.append(printable(row.answer[end:start]))
        text.append(printable(row.answer[start:stop]), style="bold")
        end = stop
    text.append(printable(row.answer[end:]))
    return text


def facts_lines(facts: Sequence[AskedFact], *, most: int) -> list[str]:
    """Return the table of the first `most` facts as lines of plain text."""
    from rich.console import Console

    # A text stream rather than `capture`: no colours, and the same width wherever the command runs.
    stream = io.StringIO()
    Console(file=stream, width=_WIDTH, markup=False, emoji=False, highlight=False).print(facts_table(facts[:most]))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _cells(fact: AskedFact, *, compared: bool) -> list[str | Text]:
    cells = [printable(fact.row.question), _in_bold(fact.row), f"{fact.agree} of {fact.askings} askings"]
    if compared and fact.compared is not None:
        cells += [printable(fact.compared.answer), f"{fact.compared.agree} of {fact.compared.askings} askings"]
    elif compared:
        cells += ["", ""]
    return cells
