"""Tune several methods by the same rules and write presets and trials for each: at one setting, or in two stages.

The two stages are those of the ATWU paper: search everything at a cheap setting, then only the learning rate at the
target setting.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from atwu._cache import short_hash
from atwu._extras import require
from atwu._file_reading import read_object
from atwu._files import check_output_folder, versions, write_json
from atwu.evaluation.registry import EvaluateConfig, check_installed
from atwu.experiments.benchmark_settings import BenchmarkSetting, find_setting
from atwu.experiments.executors import Executor
from atwu.experiments.experiment_run import RunContext, run_config
from atwu.experiments.run_search import open_storage, run_search, storage_place
from atwu.experiments.search import (
    OBJECTIVES,
    Search,
    SearchResult,
    check_search,
    compute_objective,
    objective_name,
    original_result,
    search_definition,
    stop_if_destroyed,
)
from atwu.experiments.study_file import Variant, read_study
from atwu.experiments.study_models import Models, prepare_models
from atwu.experiments.study_plan import variant_name
from atwu.methods.component import Range
from atwu.methods.component_registry import load_plugins
from atwu.methods.method_table import METHODS
from atwu.training.config import write_preset
from atwu.training.load_to_train import ModelSource
from atwu.training.progress import Say

logger = logging.getLogger(__name__)

SEARCH_SCHEMA = "atwu.search/2"
_NOT_PRESET = (
    *("save_strategy", "logging_steps"),
    *("bf16", "fp16", "tf32", "use_cpu", "torch_compile"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs"),
    *("activation_checkpointing", "activation_checkpointing_kwargs"),
)
"""Settings that do not affect results: output, logging and hardware."""

_TRIALS = ".trials.json"

# Both as in the second stage of the ATWU paper.
TRANSFER_TRIALS = 5
FACTOR = 5.0
"""The second stage searches learning rates from a fifth to five times the first stage's best."""


def second_stage(
    first: SearchResult, setting: BenchmarkSetting, *, trials: int = TRANSFER_TRIALS, objective: str | None = None
) -> Search:
    """Return the search for the learning rate alone, from the first stage's rate on, with its other best values."""
    assert first.best is not None
    options = first.search.run_options(first.best.point)
    # A larger first stage may find another best point, which gives another second-stage search.
    label = f"{first.search.label}/to-{setting.name}-{short_hash(options)[:8]}"
    rate = float(options.pop("learning_rate"))
    return dataclasses.replace(
        first.search,
        setting=setting,
        options=options,
        trials=trials,
        objective=objective_name(objective, setting),
        label=label,
        space={"learning_rate": Range(rate / FACTOR, rate * FACTOR)},
        first=({"learning_rate": rate},),
    )


@dataclass(frozen=True, slots=True)
class Tuning:
    """What to tune, with all defaults resolved."""

    variants: tuple[Variant, ...]
    every: bool
    """Whether all methods or a study were requested; those that the rows do not support are then skipped."""
    first_setting: str | None
    """Setting of the full search, as given; None for the study's own."""
    first_stage: BenchmarkSetting
    """The same as an object."""
    transfer_to: str | None
    """Setting of the learning-rate search, as given."""
    last_stage: BenchmarkSetting
    """Setting that the presets are for."""
    folder: Path
    storage: str
    """Path or full URL (`storage_place`)."""
    trials: int = 20
    transfer_trials: int = TRANSFER_TRIALS
    objective: str | None = None
    seed: int = 0

    def search(self, variant: Variant, setting: BenchmarkSetting, layers: int | None = None) -> Search:
        return Search.of(
            variant.method,
            setting,
            variant.options,
            objective=self.objective,
            label=f"{setting.name}/{variant_name(variant.label)}",
            layers=layers,
            trials=self.trials,
            seed=self.seed,
            storage=self.storage,
        )


def plan_tuning(
    methods: Sequence[str],
    *,
    study: str | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    setting: str | None = None,
    transfer_to: str | None = None,
    output: Path | None = None,
    storage: str | None = None,
    **numbers: Any,
) -> Tuning:
    """Plan what to tune.

    Args:
        study: tune the variants of this study, instead of methods.
        setting: by default the study's, else the surrogate of `transfer_to`, that setting itself, or people-tiny.
        output: folder; by default runs/tune-SETTING for the setting of the presets.
        storage: storage of trials; by default an SQLite file in the output, else in that of the first stage.
    """
    if (study is None) == (not methods):
        raise ValueError("give either --method, or --study with a study whose variants to tune.")
    load_plugins()
    written = first_stage = first = None
    if study is not None:
        written = read_study(study)
        if not setting and not transfer_to:
            first_stage = written.setting
    if first_stage is None:
        first = setting or "people-tiny"
        if setting is None and transfer_to is not None:
            first = find_setting(transfer_to).surrogate or transfer_to
        first_stage = find_setting(first)
    last_stage = first_stage
    if transfer_to:
        last_stage = find_setting(transfer_to)
    if last_stage != first_stage and last_stage.name == first_stage.name:
        raise ValueError(
            f"{first or study} and {transfer_to} both have the name {last_stage.name!r}, which identifies their "
            "trials; rename one of them."
        )
    if written is not None:
        own = [(variant.label, name) for variant in written.variants for name in options if name in variant.options]
        if own:
            raise ValueError(
                "{0!r} sets {1} itself; leave out --set {1}, or remove {1} from the variant.".format(*own[0])
            )
        variants = [replace(variant, options={**options, **variant.options}) for variant in written.variants]
        tied = [variant.label for variant in variants if variant.scorer_from or variant.start]
        if tied:
            raise ValueError(
                f"{tied[0]!r} starts from another model or run of its study and cannot be tuned separately."
            )
    else:
        if "all" in methods:
            names = list(METHODS)
        else:
            names = list(dict.fromkeys(methods))
            for name in names:
                METHODS.find(name)
        variants = [Variant(name, name, options) for name in names]
    folder = output or Path("runs") / f"tune-{last_stage.name}"
    check_output_folder(folder)
    tuning = Tuning(
        variants=tuple(variants),
        every="all" in methods or study is not None,
        first_setting=first,
        first_stage=first_stage,
        transfer_to=transfer_to,
        last_stage=last_stage,
        folder=folder,
        # Second stages of several settings share the trials of their first one.
        storage=storage_place(storage, output or Path("runs") / f"tune-{first_stage.name}"),
        **numbers,
    )
    for variant in variants:
        if transfer_to is not None and "learning_rate" in variant.options:
            raise ValueError(f"{variant.label} sets the learning rate, so there is none to transfer; leave it open.")
        for name, value in _for_preset({**last_stage.training, **variant.options}).items():
            if not isinstance(value, str | int | float | bool):
                raise ValueError(
                    f"{name} is {value!r} at {last_stage.name}; a preset can only store numbers, texts, true and false. "
                    f"Leave {name} out."
                )
        _check_earlier(folder / f"{variant_name(variant.label)}{_TRIALS}", tuning)
        try:
            run_config(first_stage, variant.method, variant.options, seed=tuning.seed)
        except ValueError as error:
            raise ValueError(f"{variant.label}: {error}") from None
    return tuning


def _check_earlier(file: Path, tuning: Tuning) -> None:
    """Raise if the output has the result of a search at other settings; a second stage may follow the first."""
    if not file.is_file():
        return
    try:
        earlier = [str(search["setting"]) for search in read_object(file)["searches"]]
    except (LookupError, TypeError):
        raise ValueError(f"{file} is not a result of `atwu tune`; choose another --output.") from None
    wanted = [tuning.first_stage.name]
    if tuning.transfer_to is not None:
        wanted.append(tuning.last_stage.name)
    # A search of the first stage alone may be continued by a second one.
    if wanted[: len(earlier)] != earlier:
        raise FileExistsError(
            f"{file} is of a search at {' and '.join(earlier)}, not {' and '.join(wanted)}; choose another --output."
        )


@dataclass(frozen=True, slots=True)
class TuningResult:
    searches: Mapping[str, Sequence[SearchResult]]
    """Method or variant -> its search, or its two stages."""
    left_out: Mapping[str, str]
    """Methods that the rows do not support, with the reason."""
    failed: Mapping[str, str]
    """Methods of which all trials were pruned before the second stage."""
    models: Models


def tune_methods(tuning: Tuning, executor: Executor, *, command: str, say: Say = logger.info) -> TuningResult:
    """Tune methods, or continue; presets of a method are written when its searches are finished, with the `command`."""
    require("optuna", extra="tune")  # before an original model is trained
    first_stage, last_stage, folder = tuning.first_stage, tuning.last_stage, tuning.folder
    settings = {setting.name: setting for setting in (first_stage, last_stage)}
    goals = {name: objective_name(tuning.objective, setting) for name, setting in settings.items()}
    for name, setting in settings.items():
        check_installed(OBJECTIVES[goals[name]].groups, EvaluateConfig(**setting.evaluation))
    # A storage that cannot be opened is found before an original model is trained.
    open_storage(tuning.storage)
    contexts = {}
    for name, setting in settings.items():
        # No objective compares with the retain-only model.
        models = prepare_models(setting, with_retain_only=False, say=say)
        contexts[name] = RunContext(models, setting, OBJECTIVES[goals[name]].groups, watch=stop_if_destroyed)
    left_out, failed = dict[str, str](), dict[str, str]()
    for variant, setting in itertools.product(tuning.variants, settings.values()):
        reason = check_search(tuning.search(variant, setting), contexts[setting.name].models)
        if reason:
            if not tuning.every:
                raise ValueError(f"{variant.label} cannot be tuned: {reason}")
            left_out[variant.label] = reason
    variants = [variant for variant in tuning.variants if variant.label not in left_out]
    if variants:
        for name, context in contexts.items():
            references = original_result(context, goals[name], executor, folder=folder)
            contexts[name] = replace(context, references=references)
    layers = layer_count(contexts[first_stage.name].models)
    finished: dict[str, list[SearchResult]] = {}
    for variant in variants:
        name = variant_name(variant.label)
        search = tuning.search(variant, first_stage, layers)
        results = [search_setting(search, contexts[first_stage.name], executor, folder=folder, say=say)]
        if tuning.transfer_to is not None:
            if results[0].best is None:  # its budget is used up; other methods continue
                failed[variant.label] = (
                    f"all trials of {search.label} were pruned; there is no learning rate to transfer."
                )
                (folder / f"{name}.yaml").unlink(missing_ok=True)  # of an earlier search
                continue
            second = second_stage(results[0], last_stage, trials=tuning.transfer_trials, objective=tuning.objective)
            results.append(search_setting(second, contexts[last_stage.name], executor, folder=folder, say=say))
        write_results(results, folder, name=name, command=command)
        finished[variant.label] = results
    return TuningResult(finished, left_out, failed, contexts[last_stage.name].models)


def layer_count(models: Models) -> int:
    return int(ModelSource(model=models.target).architecture().get_text_config().num_hidden_layers)


def search_setting(search: Search, context: RunContext, executor: Executor, *, folder: Path, say: Say) -> SearchResult:
    return run_search(
        search,
        partial(compute_objective, search, context),
        executor,
        folder=folder,
        what=search_definition(search, context.models),
        say=say,
    )


def write_results(results: Sequence[SearchResult], folder: Path, *, name: str, command: str) -> None:
    """Write NAME.yaml, unless all trials of the last search were pruned, and NAME.trials.json."""
    searches = [
        {
            "name": result.search.label,
            "setting": result.search.setting.name,
            **result.search.as_plain(),
            "budget": {"trials": len(result.trials), "pruned": result.pruned, "seconds": round(result.seconds, 1)},
            "best": None if result.best is None else result.best.number,
            "trials": [dataclasses.asdict(trial) for trial in result.trials],
        }
        for result in results
    ]
    written = {"schema": SEARCH_SCHEMA, "command": command, "searches": searches, "versions": versions()}
    # Every trial, not only the best: the budget that a table states can be checked.
    write_json(folder / f"{name}{_TRIALS}", written)
    preset, best, search = folder / f"{name}.yaml", results[-1].best, results[-1].search
    if best is None:
        preset.unlink(missing_ok=True)  # of an earlier search
        return
    setting, target = search.setting, search.setting.target
    # The text is the same for all methods with the same budget, because study tables compare it.
    budgets = []
    for result in results:
        what = " of the learning rate" if list(result.search.space) == ["learning_rate"] else ""
        budgets.append(f"{result.count}{what} at {result.search.setting.name}")
    names = (search.objective, *OBJECTIVES[search.objective].names)
    terms = zip(names, (best.value, best.forget, best.retain), strict=True)
    benchmark = setting.benchmark
    if not isinstance(benchmark, str):  # rows of the user's own
        benchmark = benchmark.forget
    about = {
        "benchmark": benchmark,
        "setting": setting.name,
        "model": str(target),
        "source": command,
        "budget": ", then ".join(budgets),
        "pruned": sum(result.pruned for result in results),
        "seconds": round(sum(result.seconds for result in results)),
        "objective": search.objective,
        "seed": search.seed,
        "result": {name: round(value, 4) for name, value in terms if value is not None},
    }
    own = search.run_options(best.point)
    for name, value in own.items():
        if isinstance(value, float):  # nine digits are far more precise than the result
            own[name] = float(f"{value:.9g}")
    write_preset(preset, {"method": search.method, **_for_preset({**setting.training, **own})}, about)


def _for_preset(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in _NOT_PRESET}
