"""The demonstration: make a model memorise invented people, unlearn some of them, and measure.

Everything runs on the embedded benchmark. The target and the retain-only model are trained once and cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from atwu.benchmarks.people.people_rows import people
from atwu.benchmarks.subsample import evenly_spaced
from atwu.evaluation.evaluate import evaluate
from atwu.evaluation.result import EvalResult
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.job_files import Jobs
from atwu.experiments.study_models import prepare_models
from atwu.methods.weightings.token_scorer import find_scorer
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.score_words import score_rows, side_by_side
from atwu.report.scored_row import ScoredRow
from atwu.report.table_values import TableLine
from atwu.training.config import UnlearnConfig
from atwu.training.progress import Say
from atwu.training.unlearn_run import ModelSource, run_unlearn

DEMO_METHODS = ("grad_diff", "wga", "atwu")
"""Methods shown, each with its published weights."""
LEARNING_RATE = 3e-4
"""Of all methods: that of a small model trained from scratch."""
HEATMAP: Mapping[str, str] = {"wga": "saturation", "atwu": "scorer"}
"""Which score of which unlearned model the heat map shows."""
MEASURED, SHOWN = 100, 40
"""Rows of each set that are measured, and forget rows in the heat map."""
COLUMNS: Mapping[TableLine, str] = {
    ("forget", "extraction_strength"): "forget\nES",
    ("forget", "probability"): "forget\nprob.",
    ("forget", "rouge_l_recall"): "forget\nROUGE",
    ("retain", "extraction_strength"): "retain\nES",
    ("retain", "probability"): "retain\nprob.",
    ("retain", "rouge_l_recall"): "retain\nROUGE",
    ("forget", "auroc_scorer"): "score\nAUROC",
}
"""The demo's table: set and metric -> head of its column."""


@dataclass(frozen=True, slots=True)
class Demonstrated:
    """What the demonstration made."""

    target: str
    """Folder of the model that memorised all rows."""
    folders: Mapping[str, Path]
    """Method -> unlearned model."""
    results: Mapping[str, EvalResult]
    """Of the target, of the model that never saw the forget rows, and of every method, on the same rows."""
    scored: list[ScoredRow]
    """Word scores of the methods on forget rows."""


def demonstrate(size: str, output: Path, *, seed: int, say: Say) -> Demonstrated:
    """Train (or find in the cache), unlearn with every method of the demo, measure, and score words.

    Raises:
        FileExistsError: a model lies in the output that no demo made.
    """
    folders, jobs = {method: output / method for method in DEMO_METHODS}, Jobs(output)
    for folder in folders.values():
        if folder.exists() and jobs.known(folder) is None:
            raise FileExistsError(f"{folder} exists and is no demo's; choose another --output.")
    rows = people(size)
    models = prepare_models(find_setting(f"people-{size}"), seed=seed, say=say)
    # Ten passes over the forget rows, more where that would be fewer than about a hundred steps.
    passes = max(10, round(800 / len(rows.forget)))
    for method, folder in folders.items():
        say(f"unlearning with {method}")
        jobs.begin(folder, {"demo": size, "seed": seed})
        config = UnlearnConfig(
            method=method,
            seed=seed,
            save_strategy="no",
            num_train_epochs=passes,
            learning_rate=LEARNING_RATE,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=1,
            warmup_steps=0.1,
        )
        run_unlearn(
            ModelSource(model=models.target),
            config,
            forget=models.benchmark.forget_source,
            retain=models.benchmark.retain_source,
            output=folder,
            overwrite=True,
            say=lambda line: None,
        )
    say("measuring five models")
    everything = {"original": models.target, "retain-only": models.retain_only, **folders}
    results = {
        name: evaluate(
            *open_model(str(folder), ModelLoadArgs()),
            forget=evenly_spaced(rows.forget, MEASURED),
            retain=evenly_spaced(rows.retain, MEASURED),
            scorer=find_scorer(str(folder)),
            progress=False,
            name=name,
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
    return Demonstrated(models.target, folders, results, side_by_side(scored))
