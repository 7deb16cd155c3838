"""One run of a study or one trial of a search: unlearn into a folder, measure, and keep what is needed."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_callback import TrainerCallback

from atwu.benchmarks.benchmark import Benchmark
from atwu.benchmarks.spread import spread
from atwu.data.alternates import check_alternates
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET, HOLDOUT, RETAIN, RWKU, TASKS
from atwu.evaluation.config import EvaluateConfig
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.result import EvalResult
from atwu.evaluation.run import evaluate
from atwu.evaluation.trace import TRACE_NAME, WeightTrace
from atwu.experiments.study.scales import Scale
from atwu.experiments.study.targets import Models
from atwu.judge.verdicts import Judge
from atwu.methods.weightings.scorer import find_scorer
from atwu.modeling.device import pick_device
from atwu.modeling.load import load_model, load_tokenizer
from atwu.training.config import UnlearnConfig
from atwu.training.rows import add_labels
from atwu.training.run import ModelSource, run_unlearn

logger = logging.getLogger(__name__)

Say = Callable[[str], None]
Watch = Callable[[Any], Sequence[TrainerCallback]]
"""Callbacks for an `UnlearnTrainer`."""

TRACED_ROWS = 40
"""Rows whose weights are looked at during a run."""


def run_config(scale: Scale, method: str, options: Mapping[str, Any], *, seed: int, **changes: Any) -> UnlearnConfig:
    """A run's settings: the scale's, then the method's own, then changes.

    Raises:
        ValueError: unknown or impossible settings.
    """
    values = {"learning_rate": scale.learning_rate, **scale.training, **options, **changes}
    if values.get("bf16") and not torch.cuda.is_available():
        values["use_cpu"] = True  # transformers takes bf16 for a GPU's otherwise
    return UnlearnConfig(method=method, seed=seed, disable_tqdm=True, **values)


def reason_against(config: UnlearnConfig, rows: Sequence[Example]) -> str | None:
    """What forget rows lack that a run needs: the end of a sentence, or None when nothing is missing."""
    recipe = config.recipe()
    if "labels" in recipe.needs and any(row.forget_spans is None for row in add_labels(rows, config)):
        return "needs rows with forget_spans, or a list of secret words (forget_words)"
    if "alternates" in recipe.needs:
        try:
            check_alternates(rows)
        except ValueError:
            return "answers a question in another way, and these rows have none"
    return None


def unlearn(
    models: Models,
    config: UnlearnConfig,
    output: Path,
    *,
    watch: Watch | None = None,
    say: Say = logger.info,
) -> Path:
    """Unlearn the benchmark's forget rows into `output`; a run that was killed continues, a finished one is left."""
    if not (output / "run.json").is_file():
        retain = models.benchmark.retain_source
        run_unlearn(
            ModelSource(model=models.target),
            config,
            forget=models.benchmark.forget_source,
            retain=retain,
            output=output,
            watch=watch,
            say=say,
        )
    return output


def free_memory() -> None:
    """Let go of a finished trainer: it refers to itself, and its model would wait on the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def tracing(models: Models, folder: Path) -> tuple[Watch, Callable[[], None]]:
    """Callbacks that look at a run's token weights, and what writes the trace into the finished folder.

    Args:
        models: rows and tokenizer.
        folder: of the run.
    """
    unfinished = folder.with_name(f"{folder.name}.{TRACE_NAME}")
    watching: list[WeightTrace] = []

    def watch(trainer: Any) -> list[TrainerCallback]:
        if not WeightTrace.watches(trainer.recipe.weighting):
            return []
        benchmark = models.benchmark
        forget = [row for row in benchmark.forget if row.forget_spans]
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        watching[:] = [
            WeightTrace(
                trainer,
                unfinished,
                load_tokenizer(models.target),
                forget=spread(forget or benchmark.forget, TRACED_ROWS),
                unseen=spread(benchmark.holdout, TRACED_ROWS),
                retain=benchmark.pool,
            )
        ]
        return list(watching)

    def finish() -> None:
        for trace in watching:
            trace.write(folder / TRACE_NAME)
        watching.clear()  # it holds the trainer, and with it the model and its optimizer
        unfinished.unlink(missing_ok=True)

    return watch, finish


def given_sets(benchmark: Benchmark, scale: Scale) -> set[str]:
    """Names of the sets that `measure` can give to an evaluation."""
    named = {FORGET: benchmark.forget, RETAIN: benchmark.retain, HOLDOUT: benchmark.holdout, **benchmark.kept}
    there = {name for name, rows in named.items() if rows}
    return there | ({RWKU} if benchmark.probes else set()) | ({TASKS} if scale.evaluation.get("tasks") else set())


def measure(
    models: Models,
    scale: Scale,
    folder: str | Path,
    *,
    metrics: Sequence[str] | None = None,
    name: str,
    original: EvalResult | None = None,
    retain_only: EvalResult | None = None,
    reference: bool = False,
    judge: Judge | None = None,
    store: GenerationStore | None = None,
    progress: bool = False,
) -> EvalResult:
    """Evaluate a model on the rows of a scale."""
    benchmark = models.benchmark
    wanted = tuple(metrics or scale.metrics)
    model = load_model(str(folder)).to(pick_device())
    return evaluate(
        model,
        load_tokenizer(str(folder)),
        forget=benchmark.forget,
        retain=benchmark.retain,
        holdout=benchmark.holdout if {"membership", "gradient_norm"} & set(wanted) else (),
        kept=benchmark.kept if "truth_ratio" in wanted else {},
        pool=benchmark.pool,
        probes=benchmark.probes if "rwku" in wanted else None,
        metrics=wanted,
        config=EvaluateConfig(**scale.evaluation),
        judge=judge,
        scorer=find_scorer(folder) if Path(folder).is_dir() else None,
        original=original,
        retain_only=retain_only,
        reference=reference,
        store=store,
        progress=progress,
        name=name,
    )


def drop_weights(folder: Path) -> None:
    """Delete a run's weights, keep everything else."""
    for file in folder.glob("*.safetensors*"):
        if file.name.startswith(("model", "adapter")):
            os.unlink(file)
