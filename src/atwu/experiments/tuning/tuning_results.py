"""Results of a search: a preset with the best trial's settings, all trials as JSON, and terminal tables."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from atwu._files import versions, write_json
from atwu._program import program
from atwu.experiments.benchmark_settings import BenchmarkSetting, FinetunedTarget
from atwu.experiments.experiment_run import format_options
from atwu.experiments.study.study_plan import variant_name
from atwu.experiments.study_models import Models, needs_preferred_answers
from atwu.experiments.tuning.search import OBJECTIVES, SearchResult
from atwu.training.preset_files import write_preset

SEARCH_SCHEMA = "atwu.search/2"
_NOT_PRESET = (
    *("save_strategy", "logging_steps"),
    *("bf16", "fp16", "tf32", "use_cpu", "torch_compile"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs"),
    *("activation_checkpointing", "activation_checkpointing_kwargs"),
)
"""Settings that do not affect results: output, logging and hardware."""


def write_results(results: Sequence[SearchResult], folder: Path, *, name: str, command: str) -> None:
    """Write NAME.yaml, unless all trials of the last search were pruned, and NAME.trials.json."""
    searches = [
        {
            "name": each.search.label,
            "method": each.search.method,
            "setting": each.search.setting.name,
            "options": dict(each.search.options),
            "objective": each.search.objective,
            "seed": each.search.seed,
            "space": {name: dataclasses.asdict(where) for name, where in (each.search.space or {}).items()},
            "budget": {"trials": len(each.trials), "pruned": each.pruned, "seconds": round(each.seconds, 1)},
            "best": None if each.best is None else each.best.number,
            "trials": [dataclasses.asdict(trial) for trial in each.trials],
        }
        for each in results
    ]
    written = {"schema": SEARCH_SCHEMA, "command": command, "searches": searches, "versions": versions()}
    write_json(folder / f"{name}.trials.json", written)
    preset, best, search = folder / f"{name}.yaml", results[-1].best, results[-1].search
    if best is None:
        preset.unlink(missing_ok=True)  # of an earlier search
        return
    setting, target = search.setting, search.setting.target
    # The text is the same for all methods with the same budget, because study tables compare it.
    budgets = []
    for each in results:
        what = " of the learning rate" if list(each.search.space or {}) == ["learning_rate"] else ""
        count = f"{len(each.trials)} trial{'s' if len(each.trials) != 1 else ''}"
        budgets.append(f"{count}{what} at {each.search.setting.name}")
    names = (str(search.objective), *OBJECTIVES[str(search.objective)].names)
    terms = zip(names, (best.value, best.forget, best.retain), strict=True)
    about = {
        "benchmark": setting.benchmark if isinstance(setting.benchmark, str) else setting.benchmark.forget,
        "setting": setting.name,
        "model": str(target) if isinstance(target, FinetunedTarget) else target,
        "source": command,
        "budget": ", then ".join(budgets),
        "pruned": sum(each.pruned for each in results),
        "seconds": round(sum(each.seconds for each in results)),
        "objective": search.objective,
        "seed": search.seed,
        "result": {name: round(value, 4) for name, value in terms if value is not None},
    }
    # Nine digits are far more precise than the result.
    own = {
        name: float(f"{value:.9g}") if isinstance(value, float) else value
        for name, value in search.run_options(best.point).items()
    }
    write_preset(preset, {"method": search.method, **_for_preset({**setting.training, **own})}, about)


def check_preset(setting: BenchmarkSetting, options: Mapping[str, Any]) -> None:
    """Check that a preset can store the shared options, before the first trial."""
    for name, value in _for_preset({**setting.training, **options}).items():
        if not isinstance(value, str | int | float | bool):
            raise ValueError(
                f"{name} is {value!r} at {setting.name}; a preset can only store numbers, texts, true and false. "
                f"Leave {name} out."
            )


def _for_preset(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in _NOT_PRESET}


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def trials_table(result: SearchResult) -> Table:
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
    """Table of the best trial of every method, with its budget."""
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
        first = dict(sorted(settings.items(), key=lambda entry: entry[0] != "learning_rate"))
        values = [_short(value) for value in (best.value, best.forget, best.retain)]
        table.add_row(name, *values, format_options(first), budget)
    return table


def use_of_presets(found: Mapping[str, Sequence[SearchResult]], folder: Path, models: Models) -> str:
    """Return the command that uses the presets; empty if none were written."""
    name = next((name for name, results in found.items() if results[-1].best is not None), None)
    if name is None:
        return ""
    rows, search = models.benchmark, found[name][-1].search
    forget = rows.forget_source_for(paired=needs_preferred_answers(search.config()))
    words = [*program(), "unlearn", "--config", str(folder / f"{variant_name(name)}.yaml"), "--model", models.target]
    words += ["--forget", forget, "--retain", rows.retain_source, "--output", "unlearned"]
    return f"\npreset{'s' if len(found) > 1 else ''} in {folder}; next:\n  {shlex.join(words)}"
