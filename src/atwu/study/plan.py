"""From a study and a scale to its runs: their settings, their folders, what is finished, and how long the rest will take."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu.benchmarks.benchmark import Benchmark
from atwu.data.sources import load_rows
from atwu.presets import Preset, find_preset, read_preset
from atwu.study.execute import run_config
from atwu.study.scales import Scale
from atwu.study.spec import Study, Variant
from atwu.training.config import UnlearnConfig

Say = Callable[[str], None]

JOB_NAME = "job.json"
EVAL_NAME = "eval.json"
TIMING_NAME = "timing.json"
NO_TUNING = "published values, one learning rate for all: nothing was tuned at this scale"


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One model to unlearn and measure."""

    name: str
    """Label and seed: `atwu-s0`."""
    variant: Variant
    seed: int
    folder: Path
    options: Mapping[str, Any]
    """The preset's options with the variant's on top."""
    budget: str
    """What the values were tuned with."""
    needs: Path | None = None
    """Folder of the finished run whose scorer this one starts from."""

    @property
    def finished(self) -> bool:
        return (self.folder / EVAL_NAME).is_file()

    def config(self, scale: Scale) -> UnlearnConfig:
        """Its settings.

        Raises:
            ValueError: they are impossible.
        """
        changes = {} if self.needs is None else {"scorer_from": str(self.needs)}
        return run_config(scale, self.variant.method, self.options, seed=self.seed, **changes)

    def job(self, scale: Scale, metrics: Sequence[str], models: Mapping[str, str]) -> dict[str, Any]:
        """Everything that decides its result, as plain JSON."""
        plain = {
            "method": self.variant.method,
            "seed": self.seed,
            "options": dict(self.options),
            "scorer_from": self.variant.scorer_from,
            "training": dict(scale.training)
            | {"learning_rate": self.options.get("learning_rate", scale.learning_rate)},
            "benchmark": scale.benchmark if isinstance(scale.benchmark, str) else asdict(scale.benchmark),
            "rows": [scale.forget, scale.retain],
            "evaluation": dict(scale.evaluation),
            "metrics": list(metrics),
            "models": dict(models),
        }
        found: dict[str, Any] = json.loads(json.dumps(plain, default=str))
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """A study at a scale, in a folder."""

    study: Study
    scale: Scale
    folder: Path
    runs: tuple[PlannedRun, ...] = field(repr=False)

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.study.metrics or self.scale.metrics

    @property
    def remaining(self) -> tuple[PlannedRun, ...]:
        return tuple(run for run in self.runs if not run.finished)

    @property
    def budget(self) -> str:
        """What the compared values were tuned with, as every table says; names who had another budget."""
        budgets: dict[str, list[str]] = {}
        for run in self.runs:
            labels = budgets.setdefault(run.budget, [])
            if run.variant.label not in labels:
                labels.append(run.variant.label)
        if len(budgets) == 1:
            return next(iter(budgets))
        ordered = sorted(budgets.items(), key=lambda entry: -len(entry[1]))
        first, *others = ordered
        return f"{first[0]}; not so: " + "; ".join(f"{', '.join(labels)} ({text})" for text, labels in others)

    def seconds_per_run(self) -> tuple[float, str]:
        """Mean of the finished runs, or the scale's figure, and where it comes from."""
        seconds = [timing["unlearn"] + timing["measure"] for run in self.runs if (timing := read_timing(run.folder))]
        if seconds:
            return sum(seconds) / len(seconds), f"measured on {len(seconds)} finished runs"
        return self.scale.seconds, f"figure of the scale, {self.scale.hardware}"

    def possible_with(self, benchmark: Benchmark, *, say: Say) -> Plan:
        """Without the variants that the benchmark's rows do not allow; says which and why."""
        rows = load_rows(benchmark.forget_source).rows
        unlabelled = any(row.forget_spans is None for row in rows)
        plain = any(not row.messages for row in rows)
        reasons: dict[str, str] = {}
        for run in self.runs:
            recipe = run.config(self.scale).recipe() if run.variant.label not in reasons else None
            if recipe is not None and recipe.needs_labels and unlabelled:
                reasons[run.variant.label] = "needs rows with forget_spans"
            elif recipe is not None and recipe.needs_alternate and plain:
                reasons[run.variant.label] = "answers a question in another way, and these rows have none"
        for label, reason in reasons.items():
            say(f"{label} is left out: it {reason}")
        kept = tuple(run for run in self.runs if run.variant.label not in reasons)
        return replace(self, runs=kept)

    def estimate(self, processes: int) -> float:
        """Seconds that the remaining runs will take."""
        waves = -(-len(self.remaining) // max(1, processes))
        return waves * self.seconds_per_run()[0]


def read_timing(folder: Path) -> dict[str, float] | None:
    """What a finished run took."""
    file = folder / TIMING_NAME
    found: dict[str, float] | None = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    return found


def plan(
    study: Study, scale: Scale, folder: str | Path, *, only: Sequence[str] = (), presets: str | Path | None = None
) -> Plan:
    """Decide every run.

    Args:
        study: what is to be run.
        scale: where.
        folder: of the study.
        only: labels to restrict it to.
        presets: folder with preset files of one's own, METHOD.yaml.

    Raises:
        ValueError: a setting that is impossible, or an unknown label.
    """
    folder = Path(folder)
    labels = [variant.label for variant in study.variants]
    unknown = [label for label in only if label not in labels]
    if unknown:
        raise ValueError(f"the study has no line {unknown[0]!r}; it has {', '.join(labels)}.")
    runs = []
    for variant in study.variants:
        if only and variant.label not in only:
            continue
        preset = _preset(scale, variant.method, presets) if study.presets else None
        options = {} if preset is None else {k: v for k, v in preset.options.items() if k != "method"}
        budget = NO_TUNING if preset is None else str(preset.about.get("budget", "values as published"))
        for seed in study.seeds:
            runs.append(
                PlannedRun(
                    name=f"{variant.label}-s{seed}",
                    variant=variant,
                    seed=seed,
                    folder=folder / "runs" / folder_name(variant.label, seed),
                    options=options | dict(variant.options),
                    budget=budget,
                    needs=None
                    if variant.scorer_from is None
                    else folder / "runs" / folder_name(variant.scorer_from, seed),
                )
            )
    return Plan(study, scale, folder, tuple(runs))


def _preset(scale: Scale, method: str, folder: str | Path | None) -> Preset | None:
    if folder is None:
        return find_preset(scale.name, method)
    path = Path(folder) / f"{method}.yaml"
    return read_preset(path) if path.is_file() else None


def check_settings(plan: Plan) -> None:
    """Build every run's settings once, before anything is spent.

    Raises:
        ValueError: naming the run.
    """
    for run in plan.runs:
        try:
            run.config(plan.scale)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{run.variant.label}: {error}") from None


def folder_name(label: str, seed: int) -> str:
    """A folder's name for a label: readable, and different for different labels."""
    plain = re.sub(r"[^\w.+=-]+", "_", label).strip("_")
    return f"{plain if plain == label else f'{plain}-{short_hash(label)[:6]}'}-s{seed}"


def described(plan: Plan, command: str) -> dict[str, Any]:
    """The study as `study.json` keeps it."""
    return {
        "schema": "atwu.study/1",
        "name": plan.study.name,
        "title": plan.study.title,
        "about": plan.study.about,
        "command": command,
        "scale": json.loads(json.dumps(asdict(plan.scale), default=str)),
        "seeds": list(plan.study.seeds),
        "metrics": list(plan.metrics),
        "budget": plan.budget,
        "published": plan.study.published.get(plan.scale.name, plan.study.published.get("default")),
        "variants": [
            {
                "label": run.variant.label,
                "method": run.variant.method,
                "options": dict(run.options),
                "budget": run.budget,
            }
            for run in plan.runs
            if run.seed == plan.study.seeds[0]
        ],
    }
