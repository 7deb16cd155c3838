"""Draw the picture of the README: verdict, answers before and after, and token weights, in light and dark.

python scripts/demo_picture.py RUN ROWS OUTPUT    writes OUTPUT-light.svg and OUTPUT-dark.svg
"""

from __future__ import annotations

import io
import json
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from atwu import load_rows
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, GenerationStore, Prompt, generate_all
from atwu.modeling.load import quiet_transformers
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.heatmap import render_terminal, score_rows
from atwu.request.verdict import RequestVerdict, read_request_verdict

WIDTH, ROWS, LONGEST = 84, 3, 120
ANSI = [(20, 20, 20), (200, 60, 40), (40, 130, 70), (170, 120, 0), (40, 90, 180), (140, 60, 140), (30, 130, 140)]
LIGHT = TerminalTheme((255, 253, 248), (36, 26, 32), [*ANSI, (36, 26, 32)])
DARK = TerminalTheme((31, 26, 35), (239, 230, 220), [*ANSI, (239, 230, 220)])
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's SVG format without external fonts."""


def draw(verdict: RequestVerdict, answers: Sequence[tuple[str, str, str]], scored: Any, *, dark: bool) -> str:
    """Draw one picture.

    Args:
        answers: questions with the answers of the original and of the unlearned model.
        scored: token weights of the rows (`score_rows`).
    """
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"VERDICT: {verdict.outcome.upper()}", "bold"))
    console.print(Text(verdict.criteria[0].sentence), "\n")
    grid = Table.grid(padding=(0, 2))
    for question, before, after in answers:
        grid.add_row(Text("Q", "dim"), Text(question, "bold"))
        grid.add_row(Text("before", "dim"), Text(textwrap.shorten(before, LONGEST, placeholder=" …")))
        grid.add_row(Text("after", "dim"), Text(textwrap.shorten(after, LONGEST, placeholder=" …")), end_section=True)
        grid.add_row("", "")
    console.print(grid)
    render_terminal(scored, console)
    return console.export_svg(title="atwu unlearn", theme=DARK if dark else LIGHT, code_format=FORMAT, unique_id="atwu")


def ask(model: Any, tokenizer: Any, rows: Sequence[Example]) -> list[str]:
    """Return the greedy answers of a model to the questions of rows."""
    prompts = [Prompt(row.messages) for row in rows]
    generator = TransformersGenerator(model.eval(), tokenizer)
    said = generate_all(generator, prompts, Decoding(max_new_tokens=40), store=GenerationStore())
    return [" ".join(generation.answer.split()) for generation in said]


def main(run: str, rows: str, output: str) -> None:
    """Read a finished run, ask its two models, and draw both pictures."""
    quiet_transformers()
    original = json.loads((Path(run) / "run.json").read_text(encoding="utf-8"))["original_model"]["model"]
    shown = load_rows(rows).rows[:ROWS]
    before = ask(*open_model(original, ModelLoadArgs()), shown)
    model, tokenizer = open_model(run, ModelLoadArgs())
    after = ask(model, tokenizer, shown)
    answers = [(row.question, *said) for row, *said in zip(shown, before, after, strict=True)]
    scored = score_rows(model, tokenizer, shown, scores={"weights": "key_tokens"})
    verdict = read_request_verdict(Path(run))
    for name, dark in (("light", False), ("dark", True)):
        path = Path(f"{output}-{name}.svg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draw(verdict, answers, scored, dark=dark), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
