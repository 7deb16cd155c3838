"""Which studies and scales there are, and what a study is about to do, for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from atwu.experiments.scales import SCALES
from atwu.experiments.study.plan import Plan
from atwu.experiments.study.spec import library


def library_table() -> Table:
    """The built-in studies."""
    table = Table("study", "what it asks", box=None, pad_edge=False)
    for name, title in library().items():
        table.add_row(name, title)
    return table


def scales_table() -> Table:
    """The scales they run at."""
    table = Table("scale", "benchmark", "starting model", "about", box=None, pad_edge=False)
    for scale in SCALES.values():
        model = scale.target if isinstance(scale.target, str) else f"trained here ({scale.target.shape})"
        table.add_row(scale.name, str(scale.benchmark), model, scale.about)
    return table


def print_plan(console: Console, planned: Plan, processes: int) -> None:
    """Print the lines of a study, the budget of their tuning, and how long it will take."""
    table = Table("line", "method", "settings", "seeds", "finished", box=None, pad_edge=False)
    for label in dict.fromkeys(run.label for run in planned.runs):
        runs = [run for run in planned.runs if run.label == label]
        settings = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in runs[0].options.items()
            if planned.scale.training.get(name) != value
        )
        table.add_row(
            label,
            runs[0].method,
            settings or "as published",
            ", ".join(str(run.seed) for run in runs),
            f"{sum(run.finished for run in runs)} of {len(runs)}",
        )
    console.print(f"[bold]{planned.study.title}[/bold] at scale {planned.scale.name}, in {planned.folder}")
    console.print(table)
    console.print(f"tuning: {planned.budget}")
    seconds, source = planned.seconds_per_run()
    console.print(
        f"{len(planned.remaining)} of {len(planned.runs)} runs to do, {processes} at once, about {seconds:.0f} s each "
        f"({source}): about {_duration(planned.estimate(processes))}"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
