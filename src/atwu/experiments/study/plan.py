"""From a study and a scale to its runs: their settings, their folders, what is finished, and how long the rest will take."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._files import file_digest
from atwu.benchmarks.benchmark import Benchmark
from atwu.benchmarks.sources import load_rows
from atwu.evaluation.config import EvaluateConfig
from atwu.evaluation.panel import all_metrics, chosen
from atwu.experiments.study.execute import given_sets, reason_against, run_config
from atwu.experiments.study.scales import Scale
from atwu.experiments.study.spec import Study, Variant
from atwu.methods.parts import part_options
from atwu.methods.presets import Preset, find_preset
from atwu.methods.recipe import lookup, recipe
from atwu.training.config import UnlearnConfig
from atwu.training.presets import read_preset

Say = Callable[[str], None]

EVAL_NAME = "eval.json"
TIMING_NAME = "timing.json"
_PARTS = frozenset({"weighting", "forget_loss", "retain_loss"})
NO_TUNING = "published values, one learning rate for all: nothing was tuned at this scale"


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One model to unlearn and measure."""

    name: str
    """Label and seed: `atwu-s1`."""
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

    def config(self, scale: Scale, *, scorer_from: Path | None) -> UnlearnConfig:
        """Its settings.

        Args:
            scale: with the shared settings.
            scorer_from: folder of the run it starts from; None to look at the settings without it.

        Raises:
            ValueError: they are impossible.
        """
        options = dict(self.options)
        if self.needs is not None and scorer_from is None:
            options.pop("scorer_procedure", None)  # frozen needs a start, which is not there yet
        elif scorer_from is not None:
            options["scorer_from"] = str(scorer_from)
        return run_config(scale, self.variant.method, options, seed=self.seed)

    def job(self, scale: Scale, metrics: Sequence[str], where: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that decides its result, as plain JSON.

        Args:
            scale: with the shared settings.
            metrics: groups that are measured.
            where: rows, models, versions, judge.
        """
        config = self.config(scale, scorer_from=None)
        plain = {
            "method": self.variant.method,
            "seed": self.seed,
            "options": dict(self.options),
            "training": dict(scale.training)
            | {"learning_rate": self.options.get("learning_rate", scale.learning_rate)},
            "evaluation": dict(scale.evaluation),
            "metrics": list(metrics),
            "recipe": config.recipe().as_plain() | {"given": None},
            **({} if config.forget_words is None else {"forget_words": file_digest(config.forget_words)}),
            **where,
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
        """Without the variants, and without the scale's metrics, that the benchmark's rows do not allow; says which and why.

        Raises:
            ValueError: the study itself asks for metrics, or for a probe, that its rows do not allow.
        """
        rows = load_rows(benchmark.forget_source).rows
        if self.study.probe and not any(row.forget_spans for row in benchmark.forget):
            raise ValueError(f"the study {self.study.name} probes for annotated words; {benchmark.name} has none.")
        reasons: dict[str, str] = {}
        for run in self.runs:
            if run.variant.label in reasons:
                continue
            if reason := reason_against(run.config(self.scale, scorer_from=None), rows):
                reasons[run.variant.label] = reason
        for run in self.runs:
            if run.variant.scorer_from in reasons:
                reasons[run.variant.label] = f"takes the scorer of {run.variant.scorer_from}, which is left out"
        for label, reason in reasons.items():
            say(f"{label} is left out: it {reason}")
        kept = tuple(run for run in self.runs if run.variant.label not in reasons)
        return replace(self, runs=kept, scale=self._measurable(benchmark, say))

    def _measurable(self, benchmark: Benchmark, say: Say) -> Scale:
        """The scale with the groups of metrics that the benchmark has rows for."""
        given = given_sets(benchmark, self.scale)
        if self.study.metrics is not None:
            chosen(self.study.metrics, sets=given, weights=True)
            return self.scale
        groups = []
        for name in self.scale.metrics:
            try:
                groups += chosen([name], sets=given, weights=True)
            except ValueError as error:
                say(f"the group {name} is left out: {error}")
        return replace(self.scale, metrics=tuple(groups))

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
    folder, study = Path(folder), study.at(scale.name)
    labels = [variant.label for variant in study.variants]
    unknown = [label for label in only if label not in labels]
    if unknown:
        raise ValueError(f"the study has no line {unknown[0]!r}; it has {', '.join(labels)}.")
    wanted = {*only, *(v.scorer_from for v in study.variants if v.label in only and v.scorer_from is not None)}
    if presets is not None and not any((Path(presets) / f"{v.method}.yaml").is_file() for v in study.variants):
        raise ValueError(f"{presets} holds no preset METHOD.yaml of this study's methods; atwu tune writes them.")
    runs = []
    for variant in study.variants:
        if wanted and variant.label not in wanted:
            continue
        preset = _preset(scale, variant.method, presets) if study.presets else None
        kept = {} if preset is None else _tuned(preset, scale, variant)
        budget = NO_TUNING if preset is None else str(preset.about.get("budget", "values as published"))
        if preset is not None and _PARTS & set(variant.options):
            budget = f"{budget}; tuned before a part was replaced"
        for seed in study.seeds:
            runs.append(
                PlannedRun(
                    name=f"{variant.label}-s{seed}",
                    variant=variant,
                    seed=seed,
                    folder=folder / "runs" / folder_name(variant.label, seed),
                    options=kept | dict(variant.options),
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
    if not path.is_file():
        return None
    preset = read_preset(path)
    if preset.method != method:
        raise ValueError(f"{path} is a preset of {preset.method}, not of {method}.")
    return preset


def _tuned(preset: Preset, scale: Scale, variant: Variant) -> dict[str, Any]:
    """A preset's options that a line starts from.

    What a scale sets beside the searched numbers is shared by all of its methods, whatever a preset of another scale was
    tuned with. Numbers of a part that the line replaces are left behind.
    """
    searched = {name for name, option in part_options().items() if option.number or option.search is not None}
    kept = {k: v for k, v in preset.options.items() if k in searched or k not in ("method", *scale.training)}
    parts = {name: variant.options[name] for name in _PARTS if name in variant.options}
    if not parts:
        return kept
    decided = recipe(variant.method, **parts)
    taken = set(decided.options)
    return {name: value for name, value in kept.items() if name not in searched or name in taken}


def check_settings(plan: Plan) -> None:
    """Build every run's settings once, before anything is spent.

    Raises:
        ValueError: naming the run.
    """
    try:
        EvaluateConfig(**plan.scale.evaluation)
    except ValueError as error:
        raise ValueError(f"evaluation of scale {plan.scale.name}: {error}") from None
    for name in plan.metrics:
        lookup("metrics", name, all_metrics())
    for run in plan.runs:
        try:
            run.config(plan.scale, scorer_from=None)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{run.variant.label}: {error}") from None


def folder_name(label: str, seed: int) -> str:
    """A folder's name for a label: readable, and different for different labels."""
    plain = re.sub(r"[^\w.+=-]+", "_", label).strip("_")
    return f"{plain if plain == label else f'{plain}-{short_hash(label)[:6]}'}-s{seed}"


def described(plan: Plan, command: str) -> dict[str, Any]:
    """The study as `study.json` keeps it."""
    return {
        "schema": "atwu.experiments.study/1",
        "name": plan.study.name,
        "title": plan.study.title,
        "about": plan.study.about,
        "command": command,
        "scale": json.loads(json.dumps(asdict(plan.scale), default=str)),
        "seeds": list(plan.study.seeds),
        "metrics": list(plan.metrics),
        "budget": plan.budget,
        "runs": [run.folder.name for run in plan.runs],
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
