"""What a model says as a table that a layman reads: question, what the model says, in how many askings it says the same."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atwu._file_reading import printable
from atwu.data.schema import Example
from atwu.request.asking.asked_facts import AskedFact

if TYPE_CHECKING:
    from rich.table import Column, Table
    from rich.text import Text

_COUNT_WIDTH = 12
"""Characters of a column of counts: room for two texts is scarcer."""
_WIDTH = 110
"""Characters of a line where the width of the terminal is not known; most answers fit beside their question."""


def facts_table(facts: Sequence[AskedFact], *, compared_model: str | None = None) -> Table:
    """Return facts as a table.

    Args:
        compared_model: name or folder of a second model that was asked the same; its askings agree with the first model.
    """
    from rich.table import Column, Table

    agreeing = Column("askings that agree", max_width=_COUNT_WIDTH)
    columns = [_text_column("question"), _text_column("what the model says"), agreeing]
    if compared_model is not None:
        columns += [_text_column(f"what {Path(compared_model).name} says"), agreeing.copy()]
    table = Table(*columns, box=None, pad_edge=False)
    for fact in facts:
        table.add_row(*_cells(fact, compared=compared_model is not None))
    return table


def _text_column(head: str) -> Column:
    from rich.table import Column

    return Column(head, overflow="fold")


def facts_lines(facts: Sequence[AskedFact], *, most: int) -> list[str]:
    """Return the table of the first `most` facts as lines of plain text."""
    from rich.console import Console

    # A text stream rather than `capture`: no colours, and the same width wherever the command runs.
    stream = io.StringIO()
    Console(file=stream, width=_WIDTH, markup=False, emoji=False, highlight=False).print(facts_table(facts[:most]))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _cells(fact: AskedFact, *, compared: bool) -> list[str | Text]:
    cells: list[str | Text] = [
        printable(fact.row.question),
        _in_bold(fact.row),
        f"{fact.agree} of {fact.askings}",
    ]
    if compared and fact.compared is not None:
        cells += [printable(fact.compared.answer), f"{fact.compared.agree} of {fact.compared.askings}"]
    elif compared:
        cells += ["", ""]
    return cells


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
