"""The demo: make a model memorize fictitious people, unlearn some of them, and evaluate.

It uses the built-in benchmark. The target and the retain-only model are trained once and cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from atwu.benchmarks.base import evenly_spaced
from atwu.benchmarks.people_rows import people
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.result import EvalResult
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.experiment_run import begin_job, job_of
from atwu.experiments.study_models import prepare_models
from atwu.methods.weightings.token_scorer import find_scorer
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.heatmap import score_rows, side_by_side
from atwu.report.metric_table import MetricKey
from atwu.report.page_templates import ScoredRow
from atwu.training.config import UnlearnConfig
from atwu.training.progress import Say, silent
from atwu.training.unlearn_run import ModelSource, run_unlearn

DEMO_METHODS = ("grad_diff", "wga", "atwu")
"""Methods of the demo, with their published weights."""
LEARNING_RATE = 3e-4
"""Learning rate of all methods, for a small model trained from scratch."""
HEATMAP: Mapping[str, str] = {"wga": "saturation", "atwu": "scorer"}
"""Scores of unlearned models shown in the heat map."""
MEASURED, SHOWN = 100, 40
"""Number of evaluated rows per set, and of forget rows in the heat map."""
DEMO_COLUMNS: Mapping[MetricKey, str] = {
    ("forget", "extraction_strength"): "forget\nES",
    ("forget", "probability"): "forget\nprob.",
    ("forget", "rouge_l_recall"): "forget\nROUGE",
    ("retain", "extraction_strength"): "retain\nES",
    ("retain", "probability"): "retain\nprob.",
    ("retain", "rouge_l_recall"): "retain\nROUGE",
    ("forget", "auroc_scorer"): "score\nAUROC",
}
"""Table of the demo: set and metric -> column title."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    target: str
    """Folder of the model that memorized all rows."""
    folders: Mapping[str, Path]
    results: Mapping[str, EvalResult]
    """Results of the target, the retain-only model and each method, on the same rows."""
    scored: list[ScoredRow]


def run_demo(size: str, output: Path, *, seed: int, say: Say) -> DemoResult:
    """Train the models (or load them from the cache), unlearn with each method of the demo, evaluate, and score words."""
    folders = {method: output / method for method in DEMO_METHODS}
    for folder in folders.values():
        # What is there is replaced below, and must not be somebody's own model.
        if folder.exists() and job_of(output, folder) is None:
            raise FileExistsError(f"{folder} exists and was not made by atwu demo; choose another --output.")
    rows = people(size)
    models = prepare_models(find_setting(f"people-{size}"), seed=seed, say=say)
    # Ten epochs over the forget set, or more to reach about a hundred steps.
    passes = max(10, round(800 / len(rows.forget)))
    for method, folder in folders.items():
        say(f"unlearning with {method}")
        begin_job(output, folder, {"demo": size, "seed": seed})
        config = UnlearnConfig(
            method=method,
            seed=seed,
            save_strategy="no",
            num_train_epochs=passes,
            learning_rate=LEARNING_RATE,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=1,
            warmup_steps=0.1,  # a share: transformers takes numbers below 1 as one
        )
        run_unlearn(
            ModelSource(model=models.target),
            config,
            forget=models.benchmark.forget_source,
            retain=models.benchmark.retain_source,
            output=folder,
            overwrite=True,
            say=silent,
        )
    say("evaluating five models")
    # The reference models first, in the order of the table.
    everything = {"original": models.target, "retain-only": models.retain_only, **folders}
    results = {
        name: evaluate(
            str(folder),
            {"forget": evenly_spaced(rows.forget, MEASURED), "retain": evenly_spaced(rows.retain, MEASURED)},
            Evaluation(progress=False, name=name),
        )
        for name, folder in everything.items()
    }
    for name, result in results.items():
        result.write(output / f"eval_{name}.json")
    shown = evenly_spaced(rows.forget, SHOWN)
    scored = [
        score_rows(
            *open_model(str(folders[method]), ModelLoadArgs()),
            shown,
            scorer=find_scorer(folders[method]),
            scores={f"{method} ({score})": score},
        )
        for method, score in HEATMAP.items()
    ]
    return DemoResult(models.target, folders, results, side_by_side(scored))
