"""`atwu demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    size: Annotated[str, typer.Option(help="Embedded benchmark: tiny (a minute), small, or base (GPU).")] = "small",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for models, results and the page.")] = Path(
        "atwu-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of training and unlearning.")] = 0,
) -> None:
    """Watch a small model forget a set of invented people while it keeps the others.

    Trains the model first (cached for the next time), unlearns with GradDiff, WGA and ATWU, measures all of them beside the
    original and a model that never saw the secrets, and writes a page of token scores.

    Example: atwu demo --size small --output atwu-demo
    """
    import time

    from rich.console import Console

    from atwu.experiments import demo as steps
    from atwu.modeling.load import quiet_transformers
    from atwu.report.heatmap import render_terminal, write_html
    from atwu.report.terminal import models_table

    start = time.perf_counter()
    quiet_transformers()
    console = Console()
    output.mkdir(parents=True, exist_ok=True)

    def say(line: str) -> None:
        console.print(f"[dim]{time.perf_counter() - start:5.0f} s[/dim]  {line}", highlight=False, soft_wrap=True)

    targets = steps.prepare(size, seed=seed, say=say)
    folders = steps.unlearn_all(targets, size, output, seed=seed, say=say)
    say("measuring five models")
    results = steps.measure(targets, folders)
    for name, result in results.items():
        result.write(output / f"eval_{name}.json")
    rows = steps.heat_map(targets, folders)
    page = write_html(output / "tokens.html", rows, title="Which words carry the secret?")
    console.print()
    counts = next(iter(results.values())).rows
    told = ", ".join(f"{len(counts[split].ids)} {split} rows" for split in ("forget", "retain"))
    console.print(f"people:{size}, {told}, seed {seed}", highlight=False)
    console.print(models_table(results, steps.COLUMNS))
    console.print()
    render_terminal(rows[:3], console)
    console.print()
    atwu = folders["atwu"]
    say("done. What to try next:")
    rows_of = f"people:{size}"
    for line in (
        f"open [bold]{page}[/bold] for the token scores of {len(rows)} rows",
        f"atwu tokens --model {atwu} --data {rows_of}:forget --score scorer",
        f"atwu evaluate --model {atwu} --forget {rows_of}:forget",
        f"atwu unlearn --model {targets.target} --forget {rows_of}:forget --retain {rows_of}:retain "
        f"--method satimp --learning-rate {steps.UNLEARNING['learning_rate']:g} --output mine",
        "your own rows: a JSONL file with question and answer, see docs/data.md",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)
