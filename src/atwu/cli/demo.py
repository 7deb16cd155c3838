"""`atwu demo`: unlearning with a small model, in minutes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._files import write_text
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import terminal


@dataclass(kw_only=True)
class DemoCommand:
    """Unlearn fictitious people from a small model while it retains others.

    Trains the model first (cached for later runs), unlearns with GradDiff, WGA and ATWU, evaluates them together with
    the original and the retain-only model, and writes a page of token scores.

    Example: atwu demo --size small --output atwu-demo
    """

    size: str = cli_option(
        "Size of the built-in benchmark: tiny (about a minute) or small (several minutes).",
        "small",
        choices=("tiny", "small"),
    )
    output: Path = cli_option("Folder for models, results and the page.", Path("atwu-demo"), alias=("-o",))
    seed: int = cli_option("Seed of training and unlearning.", 0, least=0)

    def run(self) -> None:
        import time

        from atwu.experiments.demonstration import DEMO_COLUMNS, LEARNING_RATE, run_demo
        from atwu.report.heatmap import render_html, render_terminal
        from atwu.report.terminal_tables import models_terminal_table

        start = time.perf_counter()
        console = terminal()
        self.output.mkdir(parents=True, exist_ok=True)

        def say(line: str) -> None:
            console.print(f"{time.perf_counter() - start:5.0f} s  {line}", highlight=False, soft_wrap=True)

        made = run_demo(self.size, self.output, seed=self.seed, say=say)
        page = self.output / "tokens.html"
        write_text(page, render_html(made.scored, title="Which words are key tokens?"))
        console.print()
        counts = next(iter(made.results.values())).rows
        told = ", ".join(f"{len(counts[split].ids)} {split} rows" for split in ("forget", "retain"))
        console.print(f"people:{self.size}, {told}, seed {self.seed}", highlight=False)
        console.print(models_terminal_table(made.results, DEMO_COLUMNS))
        console.print()
        render_terminal(made.scored[:3], console)
        console.print()
        say("done. Next steps:")
        rows_of = f"people:{self.size}"
        for line in (
            f"open {page} for the token scores of {len(made.scored)} rows",
            f"atwu tokens --model {made.folders['atwu']} --data {rows_of}:forget --score scorer",
            f"atwu evaluate --model {made.folders['atwu']} --forget {rows_of}:forget",
            f"atwu unlearn --model {made.target} --forget {rows_of}:forget --retain {rows_of}:retain "
            f"--method satimp --learning-rate {LEARNING_RATE:g} --output mine",
            "your own rows: a JSONL file with question and answer, see docs/data.md",
        ):
            console.print(f"  {line}", highlight=False, soft_wrap=True)
