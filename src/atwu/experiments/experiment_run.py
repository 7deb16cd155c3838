"""One run of a study or search: unlearn into a folder, evaluate, and keep the files that are needed.

What determines its result is written into a job file before it starts, so results of different settings are never mixed.
"""

from __future__ import annotations

import functools
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate.utils.memory import clear_device_cache
from transformers.trainer_callback import TrainerCallback

from atwu._file_reading import read_object
from atwu._files import file_lock, move, write_json
from atwu._manifest import MANIFEST_NAME, RECORD_NAME, write_manifest
from atwu.benchmarks.base import evenly_spaced
from atwu.evaluation.columns import FORGET, HOLDOUT, POOL, RETAIN
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.registry import EvaluateConfig, find_metric
from atwu.evaluation.result import EvalResult, read_result
from atwu.evaluation.session import ReferenceModels
from atwu.evaluation.weight_trace import WeightTrace
from atwu.evaluation.weighting_scores import find_auxiliary_models
from atwu.evaluation.word_scores import TRACE_NAME
from atwu.experiments.benchmark_settings import BenchmarkSetting
from atwu.experiments.executors import Executor
from atwu.experiments.study_models import Models, needs_preferred_answers
from atwu.judge.open_judge import JudgeOptions, open_judge
from atwu.methods.weightings.token_scorer import find_scorer
from atwu.modeling.load import load_tokenizer, quiet_transformers
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.metric_table import REFERENCE_MODELS
from atwu.report.report_records import EVAL_NAME
from atwu.training.config import UnlearnConfig
from atwu.training.row_sets import RowsInput
from atwu.training.run_folder import drop_unfinished, unfinished
from atwu.training.unlearn_run import ModelSource, run_unlearn

logger = logging.getLogger(__name__)

TIMING_NAME = "timing.json"
ORIGINAL, RETAIN_ONLY = REFERENCE_MODELS
COMPONENT_KINDS = ("weighting", "forget_loss", "retain_loss")
TRACED_ROWS = 40
"""Number of rows whose token weights are recorded during a run."""


@dataclass(frozen=True, slots=True)
class RunContext:
    models: Models
    setting: BenchmarkSetting
    metrics: tuple[str, ...]
    references: Mapping[str, EvalResult] = field(default_factory=dict)
    """Results of the original and the retain-only model, if values are relative to them."""
    judging: JudgeOptions | None = None
    """Options of the judge; None for the default of `evaluate`."""
    store: bool = False
    keep_models: bool = False
    """Keep the unlearned weights; otherwise only scorer, records and results are kept."""
    trace: bool = False
    watch: Callable[[Any], Sequence[TrainerCallback]] | None = None
    """Creates callbacks for an `UnlearnTrainer`."""


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """One model to unlearn and evaluate."""

    name: str
    """Label and seed: `atwu-s1`."""
    method: str
    options: Mapping[str, Any]
    """Options of `UnlearnConfig` in addition to the setting's."""
    seed: int
    folder: Path
    label: str = ""
    """Row of the table that it belongs to."""
    budget: str = ""
    start: str | None = None
    """`retain-only` to start from that model instead of the target."""
    scorer_from: Path | None = None
    """Folder of the run whose trained scorer it starts from."""

    @property
    def finished(self) -> bool:
        return (self.folder / EVAL_NAME).is_file()

    def config(self, setting: BenchmarkSetting, *, scorer_from: Path | None = None) -> UnlearnConfig:
        """Build the configuration of the run; without the folder of its scorer (`scorer_from`) only to check the options."""
        options = dict(self.options)
        if scorer_from is not None:
            options["scorer_from"] = str(scorer_from)
        elif self.scorer_from is not None:
            options.pop("scorer_procedure", None)  # 'frozen' needs a scorer, which does not exist yet
        return run_config(setting, self.method, options, seed=self.seed)


def execute_run(setup: RunContext, run: ExperimentRun) -> EvalResult:
    """Do the unfinished parts of a run in its folder."""
    folder = run.folder
    if not (folder / EVAL_NAME).is_file():
        quiet_transformers()
        try:
            seconds = {"unlearn": _unlearn(setup, run)}
            # The trainer has reference cycles that would keep its model on the device.
            clear_device_cache(garbage_collection=True)
            start = time.perf_counter()
            result = evaluate_run(setup, folder, run.name)
        finally:
            clear_device_cache(garbage_collection=True)
        write_json(folder / TIMING_NAME, seconds | {"measure": round(time.perf_counter() - start, 2)})
        # The manifest is written last and marks the folder as finished.
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
        result.write(folder / EVAL_NAME)
    if not setup.keep_models:
        drop_weights(folder)
    if not (folder / MANIFEST_NAME).is_file():
        write_manifest(folder)
    return read_result(folder / EVAL_NAME)


def _unlearn(setup: RunContext, run: ExperimentRun) -> float:
    """Unlearn into the folder of the run, unless that is done, and return the seconds taken."""
    folder = run.folder
    # The trace is written beside the folder, which has its name only once the run is finished.
    start, trace = time.perf_counter(), folder.with_name(f"{folder.name}.{TRACE_NAME}")

    def watch(trainer: Any) -> list[TrainerCallback]:
        callbacks: list[TrainerCallback] = []
        if setup.watch is not None:
            callbacks += setup.watch(trainer)
        if setup.trace:
            callbacks += _tracers(trainer, setup.models, trace)
        return callbacks

    if not (folder / RECORD_NAME).is_file():
        config = run.config(setup.setting, scorer_from=run.scorer_from)
        model: str | None = setup.models.target
        if run.start is not None:
            model = setup.models.retain_only
        run_unlearn(
            ModelSource(model=model),
            config,
            forget=setup.models.benchmark.forget_source_for(paired=needs_preferred_answers(config)),
            retain=setup.models.benchmark.retain_source,
            output=folder,
            watch=watch,
        )
    finished = trace.with_suffix(".finished")
    if finished.is_file():
        move(finished, folder / TRACE_NAME)
    trace.unlink(missing_ok=True)
    drop_unfinished(folder)  # the run was killed after its result was moved into place
    return round(time.perf_counter() - start, 2)


def _tracers(trainer: Any, models: Models, file: Path) -> list[TrainerCallback]:
    """Return callbacks that record the token weights of a run in a file, until it is finished."""
    # A method without token weights has nothing to trace.
    if not WeightTrace.supports(trainer.recipe.weighting):
        return []
    benchmark = models.benchmark
    # Labelled rows if there are any, whose weights can be told right from wrong.
    forget = [row for row in benchmark.forget if row.forget_spans]
    file.parent.mkdir(parents=True, exist_ok=True)
    return [
        WeightTrace(
            trainer,
            file,
            load_tokenizer(models.target),
            forget=evenly_spaced(forget or benchmark.forget, TRACED_ROWS),
            holdout=evenly_spaced(benchmark.holdout, TRACED_ROWS),
            retain=benchmark.pool,
        )
    ]


def reference_result(executor: Executor, setup: RunContext, role: str, file: Path) -> EvalResult:
    """Evaluate a reference model and store the result in a file; an existing file is read."""
    if not file.is_file():
        model: str | None = setup.models.target
        if role == RETAIN_ONLY:
            model = setup.models.retain_only
        assert model is not None
        executor.run_one(role, partial(evaluate_run, setup, model, role)).write(file)
    return read_result(file)


_judge = functools.cache(open_judge)
"""Opens the judge of all runs in this process: a local one is loaded once, and all share one limit of calls."""


def run_config(setting: BenchmarkSetting, method: str, options: Mapping[str, Any], *, seed: int) -> UnlearnConfig:
    """Build the configuration of a run: the setting's options, then the method's own."""
    values = {"learning_rate": setting.learning_rate, **setting.training, **options}
    # Runs work side by side; one bar counts them all.
    return UnlearnConfig(method=method, seed=seed, disable_tqdm=True, **values)


def format_options(options: Mapping[str, Any]) -> str:
    words = []
    for name, value in options.items():
        if isinstance(value, float):
            value = f"{value:.3g}"
        words.append(f"{name} {value}")
    return ", ".join(words)


def evaluate_run(setup: RunContext, model: str | Path, name: str) -> EvalResult:
    quiet_transformers()
    benchmark, retain_only = setup.models.benchmark, setup.models.retain_only
    needs = {need for metric in setup.metrics for need in find_metric(metric).needs}
    rows: dict[str, RowsInput] = {FORGET: benchmark.forget, RETAIN: benchmark.retain, POOL: benchmark.pool}
    if HOLDOUT in needs:
        rows[HOLDOUT] = benchmark.holdout
    if "truth_ratio" in setup.metrics:  # model utility averages over these sets, too
        rows |= benchmark.extra_retain
    evaluation = Evaluation(
        metrics=setup.metrics,
        settings=EvaluateConfig(**setup.setting.evaluation),
        scorer=find_scorer(model),
        auxiliary=find_auxiliary_models(model),
        original=setup.references.get(ORIGINAL),
        retain_only=setup.references.get(RETAIN_ONLY),
        reference=name in REFERENCE_MODELS,
        progress=False,
        name=name,
    )
    if benchmark.probes is not None and benchmark.probes.name in needs:
        evaluation = replace(evaluation, probes=benchmark.probes)
    if setup.judging is not None:
        evaluation = replace(evaluation, judge=_judge(setup.judging))
    if retain_only is not None:
        evaluation = replace(evaluation, reference_models=ReferenceModels(setup.models.target, retain_only))
    if setup.store:
        evaluation = replace(evaluation, store=GenerationStore())
    network, tokenizer = open_model(str(model), ModelLoadArgs())
    return evaluate(network, rows, evaluation, tokenizer=tokenizer)


def drop_weights(folder: Path) -> None:
    # The scorer stays: it is small, and other runs may start from it.
    for file in (*folder.glob("model*.safetensors*"), *folder.glob("adapter*.safetensors*")):
        file.unlink()


def job_of(root: Path, folder: Path) -> Any:
    """Return the job for which a folder below `root` was started; None if there is none that can be read."""
    try:
        return read_object(_job_file(root, folder))
    except (FileNotFoundError, ValueError):
        return None


def begin_job(root: Path, folder: Path, job: Mapping[str, Any]) -> None:
    """Store the job of a folder; files of another job are removed, files of the same job are kept."""
    # The files of another job would be resumed as if they were of this one.
    if job_of(root, folder) != job:
        for old in (folder, unfinished(folder)):
            shutil.rmtree(old, ignore_errors=True)
        file = _job_file(root, folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, job)


def _job_file(root: Path, folder: Path) -> Path:
    return root / "jobs" / f"{'-'.join(folder.relative_to(root).parts)}.json"


def lock_folder(folder: Path) -> AbstractContextManager[object]:
    """Lock a folder against other commands; the lock ends with this process."""
    message = f"another command is using {folder}; wait for it, or choose another --output."
    return file_lock(folder / "lock", taken=ValueError(message))
