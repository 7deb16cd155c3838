"""One run, of a study or of a search: unlearn into a folder, measure, and keep what is needed."""

from __future__ import annotations

import functools
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accelerate.utils.memory import clear_device_cache
from transformers.trainer_callback import TrainerCallback

from atwu._files import move, write_json
from atwu._manifest import MANIFEST_NAME, RECORD_NAME, write_manifest
from atwu.benchmarks.base import Benchmark
from atwu.benchmarks.sources import JOIN, load_rows
from atwu.benchmarks.subsample import evenly_spaced
from atwu.data.alternates import check_alternates
from atwu.data.schema import Example
from atwu.evaluation.auxiliary_logps import find_auxiliary_models
from atwu.evaluation.columns import HOLDOUT, RWKU
from atwu.evaluation.evaluate import evaluate
from atwu.evaluation.evaluate_config import EvaluateConfig
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.registry import all_metrics, find_metric
from atwu.evaluation.result import EvalResult, read_result
from atwu.evaluation.weight_trace import TRACE_NAME, WeightTrace
from atwu.experiments.benchmark_settings import BenchmarkSetting
from atwu.experiments.queue import Queue, Task
from atwu.experiments.study_models import Models
from atwu.judge.open_judge import JudgeOptions, open_judge
from atwu.judge.verdicts import Judge
from atwu.methods.components import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS
from atwu.methods.method_table import METHODS
from atwu.methods.plugins import load_plugins
from atwu.methods.recipe import split_weighting
from atwu.methods.weightings.token_scorer import find_scorer
from atwu.modeling.load import load_tokenizer, quiet_transformers
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.records import EVAL_NAME
from atwu.report.table_values import REFERENCE_MODELS
from atwu.training.config import UnlearnConfig
from atwu.training.output_folder import drop_unfinished
from atwu.training.training_rows import add_labels
from atwu.training.unlearn_run import ModelSource, run_unlearn

logger = logging.getLogger(__name__)

CallbacksOf = Callable[[Any], Sequence[TrainerCallback]]
"""Callbacks for an `UnlearnTrainer`."""

TIMING_NAME = "timing.json"
ORIGINAL, RETAIN_ONLY = REFERENCE_MODELS
"""Models that runs are compared with."""
FILE_OPTIONS = ("forget_words", "auxiliary_forget", "auxiliary_retain")
"""Options that name files and folders."""
COMPONENT_KINDS = ("weighting", "forget_loss", "retain_loss")
TRACED_ROWS = 40
"""Rows whose weights are looked at during a run."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all runs of a command share."""

    models: Models
    setting: BenchmarkSetting
    metrics: tuple[str, ...]
    """Groups of metrics."""
    judging: JudgeOptions | None = None
    """The judge, opened once in every process; None for that of `evaluate`."""
    store: bool = False
    """Keep generated answers in the cache."""
    keep_models: bool = False
    """Keep the unlearned weights; else only scorer, records and measurements stay."""
    trace: bool = False
    """Record token weights while training."""
    watch: CallbacksOf | None = None
    """Further callbacks of every run."""
    command: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells the judge of one command from that of another."""

    def needs(self, options: Mapping[str, Any] = MappingProxyType({})) -> tuple[Path, ...]:
        """Models, files of rows and of words that lie on this machine, of a run with such options beside the setting's."""
        given, benchmark = {**self.setting.training, **options}, self.models.benchmark
        sources = (benchmark.forget_source, benchmark.retain_source, benchmark.paired_source)
        parts = (part.strip() for source in sources if source is not None for part in (source, *source.split(JOIN)))
        names = (self.models.target, self.models.retain_only, *parts, *map(given.get, FILE_OPTIONS))
        paths = dict.fromkeys(Path(name) for name in names if name is not None)
        return tuple(path for path in paths if path.expanduser().exists())


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """One model to unlearn and measure."""

    name: str
    """Label and seed: `atwu-s1`."""
    method: str
    options: Mapping[str, Any]
    """Options of `UnlearnConfig` beside the setting's."""
    seed: int
    folder: Path
    label: str = ""
    """Line of the table that it belongs to."""
    budget: str = ""
    """What its values were tuned with."""
    start: str | None = None
    """`retain-only` where it starts from that model instead of the target."""
    scorer_from: Path | None = None
    """Folder of the run whose finished scorer it starts from."""

    @property
    def finished(self) -> bool:
        return (self.folder / EVAL_NAME).is_file()

    def config(self, setting: BenchmarkSetting, *, scorer_from: Path | None = None) -> UnlearnConfig:
        """Its settings.

        Args:
            scorer_from: folder of the run it starts from; None to look at the settings without it.

        Raises:
            ValueError: they are impossible.
        """
        options = dict(self.options)
        if scorer_from is not None:
            options["scorer_from"] = str(scorer_from)
        elif self.scorer_from is not None:
            options.pop("scorer_procedure", None)  # frozen needs a start, which is not there yet
        return run_config(setting, self.method, options, seed=self.seed)


def execute_run(
    setup: RunContext,
    run: ExperimentRun,
    references: Mapping[str, EvalResult],
    *,
    folder: Path,
    source: Path | None = None,
) -> EvalResult:
    """Do a run as far as it is not done yet.

    Args:
        folder: where it leaves what it makes, here; not always the run's own.
        source: folder of the run whose scorer it starts from, here.
    """
    if not (folder / EVAL_NAME).is_file():
        quiet_transformers()
        try:
            _unlearn_and_measure(setup, run, references, folder, source)
        finally:
            clear_device_cache(garbage_collection=True)
    if not setup.keep_models:
        drop_weights(folder)
    if not (folder / MANIFEST_NAME).is_file():
        write_manifest(folder)
    return read_result(folder / EVAL_NAME)


def _unlearn_and_measure(
    setup: RunContext, run: ExperimentRun, references: Mapping[str, EvalResult], folder: Path, source: Path | None
) -> None:
    start = time.perf_counter()
    traced, keep_trace = tracing(setup.models, folder) if setup.trace else (None, lambda: None)
    if not (folder / RECORD_NAME).is_file():
        given = [each for each in (traced, setup.watch) if each is not None]
        config = run.config(setup.setting, scorer_from=source)
        run_unlearn(
            ModelSource(model=setup.models.target if run.start is None else setup.models.retain_only),
            config,
            forget=setup.models.benchmark.removed(paired=prefers(config)),
            retain=setup.models.benchmark.retain_source,
            output=folder,
            watch=lambda trainer: [callback for watch in given for callback in watch(trainer)],
        )
    keep_trace()
    drop_unfinished(folder)  # of a run that was killed when its result was in place
    clear_device_cache(garbage_collection=True)  # the trainer refers to itself, and its model would wait on the device
    middle = time.perf_counter()
    result = evaluate_run(setup, folder, name=run.name, references=references)
    seconds = {"unlearn": round(middle - start, 2), "measure": round(time.perf_counter() - middle, 2)}
    write_json(folder / TIMING_NAME, seconds)
    (folder / MANIFEST_NAME).unlink(missing_ok=True)  # it comes last: with it the folder is finished
    result.write(folder / EVAL_NAME)


def measure_reference(setup: RunContext, role: str, references: Mapping[str, EvalResult]) -> EvalResult:
    """Measure the starting or the retain-only model."""
    quiet_transformers()
    model = setup.models.target if role == ORIGINAL else setup.models.retain_only
    assert model is not None
    return evaluate_run(setup, model, name=role, references=references)


def reference_of(
    queue: Queue, setup: RunContext, role: str, references: Mapping[str, EvalResult], file: Path
) -> EvalResult:
    """The same, done by a queue and kept in a file; what is there already is read."""
    if not file.is_file():
        queue.submit(role, Task(measure_reference, (setup, role, references), needs=setup.needs()))
        queue.result()[1].get().write(file)
    return read_result(file)


@functools.cache
def _judge(judging: JudgeOptions, command: str) -> Judge:
    """A command's judge in this process."""
    return open_judge(judging)


def run_config(setting: BenchmarkSetting, method: str, options: Mapping[str, Any], *, seed: int) -> UnlearnConfig:
    """A run's settings: the setting's, then the method's own.

    Raises:
        ValueError: unknown or impossible settings.
    """
    values = {"learning_rate": setting.learning_rate, **setting.training, **options}
    return UnlearnConfig(method=method, seed=seed, disable_tqdm=True, **values)


def shown_options(options: Mapping[str, Any]) -> str:
    """Options with their values, for people to read."""
    shown = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in options.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def check_workers(
    queue: Queue, methods: Iterable[str], options: Iterable[Mapping[str, Any]], metrics: Iterable[str]
) -> None:
    """See that those who do the work know what is known here.

    Raises:
        ValueError: they do not; a script has registered it, which other processes need not run.
    """
    parts = (
        name
        for each in options
        for kind in COMPONENT_KINDS
        if isinstance(each.get(kind), str)
        for name in split_weighting(each[kind])[0]
    )
    queue.submit("names", Task(_unknown, (tuple(dict.fromkeys([*methods, *parts, *metrics])),)))
    if lacking := queue.result()[1].get():
        raise ValueError(
            f"other processes do not know {', '.join(lacking)}, which a script registered: install it as a package with an "
            "entry point (docs/tutorials/adding-a-method.md), or do the runs in this process with --processes 1."
        )


def _unknown(names: Iterable[str]) -> list[str]:
    load_plugins()
    known = {*METHODS, *WEIGHTINGS, *FORGET_LOSSES, *RETAIN_LOSSES, *all_metrics()}
    return [name for name in names if name not in known]


def prefers(config: UnlearnConfig) -> bool:
    """Whether a run's method prefers another answer to the one that is removed."""
    return "alternates" in config.recipe().needs


def reason_against(config: UnlearnConfig, benchmark: Benchmark) -> str | None:
    """What forget rows lack that a run needs: the end of a sentence, or None when nothing is missing."""
    recipe = config.recipe()
    if not {"labels", "alternates"} & set(recipe.needs):
        return None
    source = benchmark.removed(paired=prefers(config))
    try:
        rows: Sequence[Example] = load_rows(source).rows
    except FileNotFoundError as error:
        return f"takes rows of {source}, which are not there: {error}"
    if "labels" in recipe.needs and any(row.forget_spans is None for row in add_labels(rows, config.forget_words)):
        return "needs rows with forget_spans, or a list of secret words (forget_words)"
    if "alternates" in recipe.needs:
        try:
            check_alternates(rows)
        except ValueError:
            return "answers a question in another way, and these rows have none"
    return None


def tracing(models: Models, folder: Path) -> tuple[CallbacksOf, Callable[[], None]]:
    """Callbacks that look at a run's token weights, and what writes the trace into the finished folder."""
    under_way = folder.with_name(f"{folder.name}.{TRACE_NAME}")

    def watch(trainer: Any) -> list[TrainerCallback]:
        if not WeightTrace.supports(trainer.recipe.weighting):
            return []
        benchmark = models.benchmark
        forget = [row for row in benchmark.forget if row.forget_spans]
        under_way.parent.mkdir(parents=True, exist_ok=True)
        return [
            WeightTrace(
                trainer,
                under_way,
                load_tokenizer(models.target),
                forget=evenly_spaced(forget or benchmark.forget, TRACED_ROWS),
                holdout=evenly_spaced(benchmark.holdout, TRACED_ROWS),
                retain=benchmark.pool,
            )
        ]

    def finish() -> None:
        if (finished := under_way.with_suffix(".finished")).is_file():
            move(finished, folder / TRACE_NAME)
        under_way.unlink(missing_ok=True)

    return watch, finish


def evaluate_run(
    setup: RunContext,
    model: str | Path,
    *,
    name: str,
    references: Mapping[str, EvalResult],
) -> EvalResult:
    """Evaluate a model on the rows of a setting."""
    benchmark, wanted = setup.models.benchmark, setup.metrics
    needs = {need for metric in wanted for need in find_metric(metric).needs}
    return evaluate(
        *open_model(str(model), ModelLoadArgs()),
        forget=benchmark.forget,
        retain=benchmark.retain,
        holdout=benchmark.holdout if HOLDOUT in needs else (),
        extra_retain=benchmark.extra_retain if "truth_ratio" in wanted else {},
        pool=benchmark.pool,
        probes=benchmark.probes if RWKU in needs else None,
        metrics=wanted,
        config=EvaluateConfig(**setup.setting.evaluation),
        judge=None if setup.judging is None else _judge(setup.judging, setup.command),
        scorer=find_scorer(model) if Path(model).is_dir() else None,
        auxiliary=find_auxiliary_models(model),
        original=references.get(ORIGINAL),
        retain_only=references.get(RETAIN_ONLY),
        reference=name in REFERENCE_MODELS,
        store=GenerationStore() if setup.store else None,
        progress=False,
        name=name,
    )


def drop_weights(folder: Path) -> None:
    """Delete a run's weights, keep everything else."""
    for file in folder.glob("*.safetensors*"):
        if file.name.startswith(("model", "adapter")):
            os.unlink(file)
