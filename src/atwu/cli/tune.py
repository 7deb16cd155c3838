"""`atwu tune`: hyperparameter search with equal budgets for all methods."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._program import command_line, program
from atwu.cli.cli_options import cli_option, values_of
from atwu.cli.shared import plain_table, say, stand_out, terminal
from atwu.cli.train_options import unlearn_options
from atwu.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from atwu.experiments.study_models import Models
    from atwu.experiments.tuning.search import SearchResult


@dataclass(kw_only=True)
class TuneCommand:
    """Search hyperparameters of methods or of the variants of a study, with the same budget and sampler for all.

    Starts with the recommended values of each method. Run the same command again to continue an interrupted search:
    finished trials are kept, the others start again. Writes the best settings as OUTPUT/METHOD.yaml, for `atwu unlearn
    --config`, and all trials as OUTPUT/METHOD.trials.json. See docs/studies.md.

    Example: atwu tune --method atwu --method grad_diff --setting people-tiny --trials 20
    """

    method: tuple[str, ...] = cli_option("Method from `atwu methods`, or all; repeatable.", ())
    study: str | None = cli_option(
        "Tune every variant of a study instead: a YAML file or a name from `atwu study list`. Then: atwu study run "
        "STUDY --presets OUTPUT.",
        None,
    )
    setting: str | None = cli_option(
        "Setting by name (`atwu study list`), or a YAML file. Default: people-tiny, or that of the study.", None
    )
    trials: int = cli_option("Number of finished trials per method, including pruned ones.", 20, least=1)
    transfer_to: str | None = cli_option(
        "Second setting on which only the learning rate is searched again. The first stage uses --setting; default: "
        "its surrogate, or the second setting itself.",
        None,
    )
    transfer_trials: int = cli_option("Number of trials of the second stage.", 5, least=1)
    objective: str | None = cli_option(
        ("Objective: ES_delta, N_delta (rwku) or UQ (offline judge). Default: the setting's."), None
    )
    fixed: tuple[str, ...] = cli_option(
        "Fixed option of all runs as NAME=VALUE, such as weighting=entropy; repeatable.", (), flag="set"
    )
    seed: int = cli_option("Seed of the sampler and of the runs.", 0, least=0)
    storage: str | None = cli_option(
        "Storage: NAME.db (SQLite), NAME.journal, or a database such as postgresql://USER@HOST/NAME. Default: the "
        "environment variable ATWU_STORAGE, else search.db in --output, else in runs/tune-SETTING of the first "
        "stage's setting, which second stages share.",
        None,
    )
    processes: int = cli_option("Number of parallel trials.", 1, least=1)
    cluster: str | None = cli_option("Ray cluster to run on: HOST:PORT of its head, or auto (extra `cluster`).", None)
    gpus_per_run: float | None = cli_option(
        "GPUs of the cluster for each trial. Default: 1 if the cluster has GPUs.", None, least=0
    )
    output: Path | None = cli_option(
        "Output folder. Default: runs/tune-SETTING for the setting of the presets.", None, alias=("-o",)
    )

    def run(self) -> None:
        options = dict(map(_setting, self.fixed))
        from atwu.experiments.cluster import open_executor
        from atwu.experiments.tuning.run_search import masked
        from atwu.experiments.tuning.tune_methods import plan_tuning, tune_methods

        tuning = plan_tuning(
            self.method,
            **values_of(self, "study", "setting", "transfer_to", "output"),
            **values_of(self, "trials", "transfer_trials", "objective", "seed"),
            storage=self.storage or os.environ.get("ATWU_STORAGE"),
            options=options,
        )
        folder, count = tuning.folder, len(tuning.variants)
        kind = "method" if self.study is None else "variant"
        where = f"{tuning.here.name}; storage {masked(tuning.storage)}"
        say(f"{count} {kind}{'s' if count > 1 else ''} x {self.trials} trials at {where}")
        with open_executor(
            self.processes, folder=folder, cluster=self.cluster, gpus_per_run=self.gpus_per_run, say=say
        ) as executor:
            done = tune_methods(tuning, executor, fixed=self.fixed, say=say)
        found = done.searches
        console = terminal()
        if len(found) == 1:
            for result in next(iter(found.values())):
                console.print(f"{result.search.label}: all trials, * marks the best", style="bold")
                points = list(result.search.space or {})
                heads = ("trial", str(result.search.objective), *(name.replace("_", " ") for name in points), "s")
                table = plain_table(*heads, right=heads)
                for trial in result.trials:
                    number = f"{'*' if trial is result.best else ''}{trial.number}"
                    value = "pruned" if trial.value is None else _short(trial.value)
                    point = [f"{trial.point[name]:.3g}" for name in points]
                    table.add_row(number, value, *point, f"{trial.seconds:.1f}")
                console.print(table)
                console.print()
        if found:
            last = next(iter(found.values()))[-1].search
            console.print(f"best settings at {last.setting.name}, seed {last.seed}", style="bold")
            console.print(best_table(found))
            if self.study is not None:
                at = tuning.transfer_to or tuning.first_setting  # None: the study's own
                again = [*program(), "study", "run", self.study, *(["--setting", at] if at else [])]
                say(f"\npresets in {folder}; next:\n  {command_line([*again, '--presets', str(folder)])}")
            elif words := use_of_presets(found, folder, done.models):
                say(words)
        for name, reason in {**done.left_out, **done.failed}.items():
            stand_out(f"not tuned: {name}: {reason}")
        if done.failed or not found:
            raise SystemExit(1)


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE with the value as YAML reads it."""
    from atwu._file_reading import parse_yaml
    from atwu._names import lookup

    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise UsageError(f"--set must be NAME=VALUE, got {text!r}.")
    lookup("option", name, dict.fromkeys(sorted(option.name for option in unlearn_options())))
    return name, parse_yaml(value, what=f"--set {name}")


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def best_table(found: Mapping[str, Sequence[SearchResult]]) -> Table:
    """Table of the best trial of every method, with its budget."""
    from atwu.experiments.experiment_run import format_options
    from atwu.experiments.tuning.search import OBJECTIVES

    objective = str(next(iter(found.values()))[-1].search.objective)
    numbers = (objective, *OBJECTIVES[objective].names)
    table = plain_table("method", *numbers, "settings", "budget", right=numbers)
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
    from atwu.experiments.study.study_plan import variant_name
    from atwu.experiments.study_models import needs_preferred_answers

    name = next((name for name, results in found.items() if results[-1].best is not None), None)
    if name is None:
        return ""
    rows, search = models.benchmark, found[name][-1].search
    forget = rows.forget_source_for(paired=needs_preferred_answers(search.config()))
    words = [*program(), "unlearn", "--config", str(folder / f"{variant_name(name)}.yaml"), "--model", models.target]
    words += ["--forget", forget, "--retain", rows.retain_source, "--output", "unlearned"]
    return f"\npreset{'s' if len(found) > 1 else ''} in {folder}; next:\n  {command_line(words)}"
