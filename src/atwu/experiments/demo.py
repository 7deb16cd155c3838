"""The demonstration: make a model memorise invented people, unlearn some of them, and measure.

Everything runs on the embedded benchmark. The target and the retain-only model are trained once and cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from atwu.benchmarks.people.rows import PeopleRows, people
from atwu.benchmarks.spread import spread
from atwu.evaluation.result import EvalResult
from atwu.evaluation.run import evaluate
from atwu.experiments.scales import Scratch, find_scale
from atwu.experiments.targets import train_once
from atwu.methods.weightings.scorer import find_scorer
from atwu.modeling.device import pick_device
from atwu.modeling.load import load_model, load_tokenizer
from atwu.report.score_rows import score_rows, side_by_side
from atwu.report.scored_row import ScoredRow
from atwu.training.config import UnlearnConfig
from atwu.training.run import ModelSource, run_unlearn

Say = Callable[[str], None]

METHODS = ("grad_diff", "wga", "atwu")
"""Methods shown, each with its published weights."""

UNLEARNING = {
    "learning_rate": 3e-4,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "warmup_steps": 0.1,
}
"""Settings shared by all methods. The learning rate is that of a small model trained from scratch."""


def epochs(forget_rows: int) -> int:
    """Ten passes over the forget rows, more where that would be fewer than about a hundred steps."""
    return max(10, round(800 / forget_rows))


HEATMAP: Mapping[str, str] = {"wga": "saturation", "atwu": "scorer"}
"""Which score of which unlearned model the heat map shows."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The two trained models the demo starts from."""

    benchmark: PeopleRows
    target: Path
    """Memorised forget and retain rows."""
    retain_only: Path
    """Has never seen the forget rows: the gold standard."""


def prepare(size: str, *, seed: int = 0, cache: Path | None = None, say: Say = print) -> Targets:
    """Train the target and the retain-only model of the embedded benchmark, or find them in the cache."""
    benchmark = people(size)
    scratch = find_scale(f"people-{size}").target
    assert isinstance(scratch, Scratch)
    folder = train_once(
        f"people-{size}",
        scratch,
        target=f"people:{size}:full",
        retain_only=f"people:{size}:retain",
        corpus=benchmark.texts,
        seed=seed,
        cache=cache,
        say=say,
    )
    return Targets(benchmark, folder / "target", folder / "retain_only")


def unlearn_all(targets: Targets, size: str, output: Path, *, seed: int = 0, say: Say = print) -> dict[str, Path]:
    """Unlearn the forget people with every method of the demo; returns the model folders."""
    folders = {}
    for method in METHODS:
        passes = epochs(len(targets.benchmark.forget))
        config = UnlearnConfig(method=method, seed=seed, save_strategy="no", num_train_epochs=passes, **UNLEARNING)  # type: ignore[arg-type]
        say(f"unlearning with {method}")
        folders[method] = output / method
        run_unlearn(
            ModelSource(model=str(targets.target)),
            config,
            forget=f"people:{size}:forget",
            retain=f"people:{size}:retain",
            output=folders[method],
            overwrite=True,
            say=lambda line: None,
        )
    return folders


def measure(targets: Targets, folders: Mapping[str, Path], *, rows: int = 100) -> dict[str, EvalResult]:
    """Evaluate every model on the same forget and retain rows."""
    everything = {"original": targets.target, "retain-only": targets.retain_only, **folders}
    results = {}
    for name, folder in everything.items():
        results[name] = evaluate(
            load_model(str(folder)).to(pick_device()),
            load_tokenizer(str(folder)),
            forget=spread(targets.benchmark.forget, rows),
            retain=spread(targets.benchmark.retain, rows),
            scorer=find_scorer(folder),
            progress=False,
            name=name,
        )
    return results


COLUMNS: Mapping[tuple[str, str], str] = {
    ("forget", "extraction_strength"): "forget\nES",
    ("forget", "probability"): "forget\nprob.",
    ("forget", "rouge_l_recall"): "forget\nROUGE",
    ("retain", "extraction_strength"): "retain\nES",
    ("retain", "probability"): "retain\nprob.",
    ("retain", "rouge_l_recall"): "retain\nROUGE",
    ("forget", "auroc_scorer"): "score\nAUROC",
}
"""The demo's table: set and metric -> head of its column."""


def heat_map(targets: Targets, folders: Mapping[str, Path], *, rows: int = 40) -> list[ScoredRow]:
    """Word scores of the methods on forget rows."""
    examples = spread(targets.benchmark.forget, rows)
    parts = []
    for method, score in HEATMAP.items():
        folder = folders[method]
        parts.append(
            score_rows(
                load_model(str(folder)).to(pick_device()),
                load_tokenizer(str(folder)),
                examples,
                scorer=find_scorer(folder),
                scores={f"{method} ({score})": score},
            )
        )
    return side_by_side(parts)
