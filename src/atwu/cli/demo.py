"""`atwu demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu.cli.options import option


@dataclass(kw_only=True)
class Demo:
    """Watch a small model forget a set of invented people while it keeps the others.

    Trains the model first (cached for the next time), unlearns with GradDiff, WGA and ATWU, measures all of them beside the
    original and a model that never saw the secrets, and writes a page of token scores.

    Example: atwu demo --size small --output atwu-demo
    """

    size: str = option("Embedded benchmark: tiny (a minute), small, or base (GPU).", "small")
    output: Path = option("Folder for models, results and the page.", Path("atwu-demo"), alias=("-o",))
    seed: int = option("Seed of training and unlearning.", 0, least=0)

    def run(self) -> None:
        """Train, unlearn, measure, show."""
        import time

        from rich.console import Console

        from atwu.experiments import demo as steps
        from atwu.modeling.load import quiet_transformers
        from atwu.report.heatmap import render_terminal, write_html
        from atwu.report.terminal import models_table

        start = time.perf_counter()
        quiet_transformers()
        console = Console()
        self.output.mkdir(parents=True, exist_ok=True)

        def say(line: str) -> None:
            console.print(f"[dim]{time.perf_counter() - start:5.0f} s[/dim]  {line}", highlight=False, soft_wrap=True)

        targets = steps.prepare(self.size, seed=self.seed, say=say)
        folders = steps.unlearn_all(targets, self.size, self.output, seed=self.seed, say=say)
        say("measuring five models")
        results = steps.measure(targets, folders)
        for name, result in results.items():
            result.write(self.output / f"eval_{name}.json")
        rows = steps.heat_map(targets, folders)
        page = write_html(self.output / "tokens.html", rows, title="Which words carry the secret?")
        console.print()
        counts = next(iter(results.values())).rows
        told = ", ".join(f"{len(counts[split].ids)} {split} rows" for split in ("forget", "retain"))
        console.print(f"people:{self.size}, {told}, seed {self.seed}", highlight=False)
        console.print(models_table(results, steps.COLUMNS))
        console.print()
        render_terminal(rows[:3], console)
        console.print()
        atwu = folders["atwu"]
        say("done. What to try next:")
        rows_of = f"people:{self.size}"
        for line in (
            f"open [bold]{page}[/bold] for the token scores of {len(rows)} rows",
            f"atwu tokens --model {atwu} --data {rows_of}:forget --score scorer",
            f"atwu evaluate --model {atwu} --forget {rows_of}:forget",
            f"atwu unlearn --model {targets.target} --forget {rows_of}:forget --retain {rows_of}:retain "
            f"--method satimp --learning-rate {steps.UNLEARNING['learning_rate']:g} --output mine",
            "your own rows: a JSONL file with question and answer, see docs/data.md",
        ):
            console.print(f"  {line}", highlight=False, soft_wrap=True)
