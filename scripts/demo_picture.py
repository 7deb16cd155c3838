"""Draw the picture of the README: verdict, answers before and after, and token weights, in light and dark.

python scripts/demo_picture.py RUN ROWS OUTPUT    writes OUTPUT-light.svg and OUTPUT-dark.svg
"""

from __future__ import annotations

import io
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from atwu import load_rows
from atwu.modeling.load import quiet_transformers
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.heatmap import render_terminal, score_rows

WIDTH, ROWS, LONGEST = 84, 3, 120
ANSI = [(20, 20, 20), (200, 60, 40), (40, 130, 70), (170, 120, 0), (40, 90, 180), (140, 60, 140), (30, 130, 140)]
LIGHT = TerminalTheme((255, 253, 248), (36, 26, 32), [*ANSI, (36, 26, 32)])
DARK = TerminalTheme((31, 26, 35), (239, 230, 220), [*ANSI, (239, 230, 220)])
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's SVG format without external fonts."""


def draw(verdict: dict[str, Any], scored: Any, *, dark: bool) -> str:
    """Draw one picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"VERDICT: {verdict['outcome'].upper()}", "bold"))
    console.print(Text(verdict["reason"]), "\n")
    grid = Table.grid(padding=(0, 2))
    for each in verdict["answers"][:ROWS]:
        grid.add_row(Text("Q", "dim"), Text(each["question"], "bold"))
        grid.add_row(Text("before", "dim"), Text(textwrap.shorten(each["before"], LONGEST, placeholder=" …")))
        grid.add_row(
            Text("after", "dim"), Text(textwrap.shorten(each["after"], LONGEST, placeholder=" …")), end_section=True
        )
        grid.add_row("", "")
    console.print(grid)
    render_terminal(scored[:ROWS], console, dark=dark)
    return console.export_svg(title="atwu unlearn", theme=DARK if dark else LIGHT, code_format=FORMAT, unique_id="atwu")


def main(run: str, rows: str, output: str) -> None:
    """Read a finished run and draw both pictures."""
    quiet_transformers()
    verdict = json.loads((Path(run) / "verdict.json").read_text(encoding="utf-8"))
    model, tokenizer = open_model(run, ModelLoadArgs())
    shown = load_rows(rows).rows[:ROWS]
    scored = score_rows(model, tokenizer, shown, scores={"weights": "key_tokens"})
    for name, dark in (("light", False), ("dark", True)):
        path = Path(f"{output}-{name}.svg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draw(verdict, scored, dark=dark), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
