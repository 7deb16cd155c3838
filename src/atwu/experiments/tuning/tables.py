"""What searches found, for the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from atwu.experiments.run import prefers, run_config
from atwu.experiments.study.plan import line_name
from atwu.experiments.targets import Models
from atwu.experiments.tuning.search import OBJECTIVES, SearchResult


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def trials_table(result: SearchResult) -> Table:
    """All trials of one search, in the order they were asked for."""
    names = list(result.search.space or {})
    table = Table(box=None, pad_edge=False)
    for name in ("trial", str(result.search.objective), *(name.replace("_", " ") for name in names), "s"):
        table.add_column(name, justify="right")
    for trial in result.trials:
        mark = "*" if trial is result.best else ""
        value = "pruned" if trial.value is None else _short(trial.value)
        point = [f"{trial.point[name]:.3g}" for name in names]
        table.add_row(f"{mark}{trial.number}", value, *point, f"{trial.seconds:.1f}")
    return table


def best_table(found: Mapping[str, Sequence[SearchResult]]) -> Table:
    """The best of every method with its budget."""
    table = Table(box=None, pad_edge=False)
    objective = str(next(iter(found.values()))[-1].search.objective)
    for name in ("method", objective, *OBJECTIVES[objective].names, "settings", "budget"):
        table.add_column(name, justify="left" if name in ("method", "settings", "budget") else "right")
    for name, results in found.items():
        best = results[-1].best
        budget = "; then ".join(each.budget for each in results)
        if best is None:
            table.add_row(name, "-", "", "", "all trials were pruned; lower --set learning_rate=...", budget)
            continue
        settings = results[-1].search.run_options(best.point)
        text = ", ".join(
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in sorted(settings.items(), key=lambda entry: entry[0] != "learning_rate")
        )
        values = [_short(value) for value in (best.value, best.forget, best.retain)]
        table.add_row(name, *values, text, budget)
    return table


def use_of_presets(found: Mapping[str, Sequence[SearchResult]], folder: Path, models: Models | None) -> str:
    """How to use what was written; empty where nothing was."""
    name = next((name for name, results in found.items() if results[-1].best is not None), None)
    if name is None or models is None:
        return ""
    rows, search = models.benchmark, found[name][-1].search
    paired = prefers(run_config(search.scale, search.method, search.options, seed=search.seed))
    words = ["atwu", "unlearn", "--config", str(folder / f"{line_name(name)}.yaml"), "--model", models.target]
    words += ["--forget", rows.removed(paired=paired), "--retain", rows.retain_source, "--output", "unlearned"]
    return f"\npreset{'s' if len(found) > 1 else ''} in {folder}; next:\n  {shlex.join(words)}"
