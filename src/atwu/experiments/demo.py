"""The demonstration: make a model memorise invented people, unlearn some of them, and measure.

Everything runs on the embedded benchmark. The target and the retain-only model are trained once and cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from atwu.benchmarks.people.rows import people
from atwu.benchmarks.spread import spread
from atwu.evaluation.result import EvalResult
from atwu.evaluation.run import evaluate
from atwu.experiments.jobs import Jobs
from atwu.experiments.scales import find_scale
from atwu.experiments.targets import prepare_models
from atwu.methods.weightings.scorer import find_scorer
from atwu.modeling.opening import Loading, open_model
from atwu.report.score_rows import score_rows, side_by_side
from atwu.report.scored_row import ScoredRow
from atwu.report.values import Line
from atwu.training.config import UnlearnConfig
from atwu.training.progress import Say
from atwu.training.run import ModelSource, run_unlearn

METHODS = ("grad_diff", "wga", "atwu")
"""Methods shown, each with its published weights."""
LEARNING_RATE = 3e-4
"""Of all methods: that of a small model trained from scratch."""
HEATMAP: Mapping[str, str] = {"wga": "saturation", "atwu": "scorer"}
"""Which score of which unlearned model the heat map shows."""
MEASURED, SHOWN = 100, 40
"""Rows of each set that are measured, and forget rows in the heat map."""
COLUMNS: Mapping[Line, str] = {
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
    folders, jobs = {method: output / method for method in METHODS}, Jobs(output)
    for folder in folders.values():
        if folder.exists() and jobs.known(folder) is None:
            raise FileExistsError(f"{folder} exists and is no demo's; choose another --output.")
    rows = people(size)
    models = prepare_models(find_scale(f"people-{size}"), seed=seed, say=say)
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
            *open_model(str(folder), Loading()),
            forget=spread(rows.forget, MEASURED),
            retain=spread(rows.retain, MEASURED),
            scorer=find_scorer(str(folder)),
            progress=False,
            name=name,
        )
        for name, folder in everything.items()
    }
    for name, result in results.items():
        result.write(output / f"eval_{name}.json")
    shown = spread(rows.forget, SHOWN)
    scored = [
        score_rows(
            *open_model(str(folders[method]), Loading()),
            shown,
            scorer=find_scorer(folders[method]),
            scores={f"{method} ({score})": score},
        )
        for method, score in HEATMAP.items()
    ]
    return Demonstrated(models.target, folders, results, side_by_side(scored))
