"""From a study and a scale to its runs: their settings, their folders, what is finished, and how long the rest will take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._names import lookup
from atwu._reading import read_json
from atwu.benchmarks.benchmark import Benchmark
from atwu.evaluation.columns import FORGET, HOLDOUT, RETAIN, RWKU, TASKS
from atwu.evaluation.config import EvaluateConfig
from atwu.evaluation.panel import all_metrics, chosen
from atwu.experiments.run import PARTS, TIMING_NAME, Run, reason_against
from atwu.experiments.scales import Scale, Taught
from atwu.experiments.study.spec import Study, Variant
from atwu.experiments.targets import has_retain_only
from atwu.methods.parts import part_options
from atwu.methods.presets import Preset, find_preset
from atwu.methods.recipe import recipe
from atwu.methods.table import METHODS
from atwu.modeling.device import product_speed
from atwu.training.presets import read_preset

MOST_RUNS = 10_000
PUBLISHED_VALUES = "values as published"
NO_TUNING = "published values, one learning rate for all: nothing was tuned at this scale"


@dataclass(frozen=True, slots=True)
class Plan:
    """A study at a scale, in a folder."""

    study: Study
    scale: Scale
    folder: Path
    runs: tuple[Run, ...] = field(repr=False)
    asked: tuple[str, ...] = ()
    """Labels of the lines that are to be done now; none for all."""
    left_out: tuple[str, ...] = ()
    """Lines, and groups of metrics, that cannot be had here, and why: a sentence each."""

    @property
    def now(self) -> Plan:
        """The lines of it that are to be done now, with those whose scorers they start from."""
        wanted = [run for run in self.runs if run.label in self.asked]
        sources = [run.scorer_from for run in wanted]
        kept = [run for run in self.runs if run in wanted or run.folder in sources]
        return replace(self, runs=tuple(kept)) if self.asked else self

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.study.metrics or self.scale.metrics

    @property
    def remaining(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if not run.finished)

    @property
    def budget(self) -> str:
        """What the compared values were tuned with, as every table says; names who had another budget."""
        budgets: dict[str, dict[str, None]] = {}
        for run in self.runs:
            budgets.setdefault(run.budget, {})[run.label] = None
        if len(budgets) < 2:
            return "".join(budgets)
        first, *others = sorted(budgets.items(), key=lambda entry: -len(entry[1]))
        return f"{first[0]}; not so: " + "; ".join(f"{', '.join(labels)} ({text})" for text, labels in others)

    def seconds_per_run(self) -> tuple[float, str]:
        """Mean of the finished runs, or the scale's figure, and where it comes from."""
        files = [run.folder / TIMING_NAME for run in self.runs]
        timings = [read_json(file) for file in files if file.is_file()]
        if timings:
            total = sum(timing["unlearn"] + timing["measure"] for timing in timings)
            return total / len(timings), f"measured on {len(timings)} finished runs"
        source = f"figure of the scale, {self.scale.hardware}"
        slower = self._slower()
        return self.scale.seconds * slower, source if slower == 1 else f"{source}, which is {slower:.1f} times as fast"

    def seconds_of_models(self) -> float:
        """Training the models that runs start from and are compared with, where the cache has neither."""
        return self.scale.taught_seconds * self._slower() if isinstance(self.scale.target, Taught) else 0.0

    def _slower(self) -> float:
        """How many times as long products take on a core here as where the scale's figures were measured."""
        if self.scale.product_speed is None:
            return 1.0
        return self.scale.product_speed / product_speed()

    def estimate(self, processes: int) -> float:
        """Seconds that the remaining runs will take."""
        waves = -(-len(self.remaining) // max(1, processes))
        return waves * self.seconds_per_run()[0]

    def source(self, run: Run) -> Run | None:
        """The run whose scorer it starts from."""
        return next((other for other in self.runs if other.folder == run.scorer_from), None)

    def possible_with(self, benchmark: Benchmark) -> Plan:
        """Without the variants, and without the scale's metrics, that the benchmark's rows do not allow.

        Raises:
            ValueError: the study itself asks for metrics, or for a probe, that its rows do not allow.
        """
        if self.study.probe and not any(row.forget_spans for row in benchmark.forget):
            raise ValueError(f"the study {self.study.name} probes for annotated words; {benchmark.name} has none.")
        reasons: dict[str, str] = {}
        for run in self.runs:
            if run.label in reasons:
                continue
            if run.start is not None and not has_retain_only(self.scale):
                reasons[run.label] = f"starts from the retain-only model, and {self.scale.name} has none"
            elif reason := reason_against(run.config(self.scale), benchmark):
                reasons[run.label] = reason
        scale, groups = self._measurable(benchmark)
        kept = self.without(reasons)
        return replace(kept, scale=scale, left_out=(*kept.left_out, *groups))

    def without(self, reasons: Mapping[str, str]) -> Plan:
        """Without some lines, each with its reason, and without those that take their scorers."""
        known = {*reasons, *(run.label for run in self.runs)}
        tied = {
            variant.label: f"takes the scorer of {variant.scorer_from}, which is left out"
            for variant in self.study.variants
            if variant.scorer_from in reasons and variant.label in known
        }
        every = {**reasons, **tied}
        lines = (f"{label} is left out: it {reason}" for label, reason in every.items())
        runs = tuple(run for run in self.runs if run.label not in every)
        return replace(self, runs=runs, left_out=(*self.left_out, *lines))

    def _measurable(self, benchmark: Benchmark) -> tuple[Scale, list[str]]:
        """The scale with the groups of metrics that the benchmark has rows for, and why without the others."""
        given = _given_sets(benchmark, self.scale)
        if self.study.metrics is not None:
            chosen(self.study.metrics, sets=given, weights=True)
            return self.scale, []
        groups, without = [], []
        for name in self.scale.metrics:
            try:
                groups += chosen([name], sets=given, weights=True)
            except ValueError as error:
                without.append(f"the group {name} is left out: {error}")
        return replace(self.scale, metrics=tuple(groups)), without


def _given_sets(benchmark: Benchmark, scale: Scale) -> set[str]:
    """Names of the sets that a run can give to an evaluation."""
    named = {FORGET: benchmark.forget, RETAIN: benchmark.retain, HOLDOUT: benchmark.holdout, **benchmark.kept}
    there = {name for name, rows in named.items() if rows}
    return there | ({RWKU} if benchmark.probes else set()) | ({TASKS} if scale.evaluation.get("tasks") else set())


def plan(
    study: Study, scale: Scale, folder: str | Path, *, presets: str | Path | None = None, only: Sequence[str] = ()
) -> Plan:
    """Decide every run, and build its settings once, before anything is spent.

    Args:
        presets: folder with preset files of one's own, METHOD.yaml.
        only: labels of the lines that are to be done now; of the others, those that cannot run are left out.

    Raises:
        ValueError: impossible settings, naming the line; there is no line of such a label; the folder of presets holds none
            for this study, or it takes none; or there would be more than `MOST_RUNS` runs.
    """
    folder, study = Path(folder), study.at(scale.name)
    there = [variant.label for variant in study.variants]
    if unknown := [label for label in only if label not in there]:
        raise ValueError(f"the study has no line {unknown[0]!r}; it has {', '.join(there)}.")
    if presets is not None and not study.presets:
        raise ValueError(f"the study says `presets: false`; leave --presets {presets} out, or that line of the study.")
    if presets is not None and not any(_preset_file(v, Path(presets)) for v in study.variants):
        raise ValueError(
            f"{presets} holds no preset LINE.yaml or METHOD.yaml of this study; atwu tune --study writes them."
        )
    if (count := len(study.variants) * len(study.seeds)) > MOST_RUNS:
        raise ValueError(
            f"{len(study.variants)} lines times {len(study.seeds)} seeds make {count} runs; at most {MOST_RUNS}."
        )
    try:
        EvaluateConfig(**scale.evaluation)
    except ValueError as error:
        raise ValueError(f"evaluation of scale {scale.name}: {error}") from None
    for name in study.metrics or scale.metrics:
        lookup("metrics", name, all_metrics())
    runs, impossible = [], {}
    asked = {*only, *(variant.scorer_from for variant in study.variants if variant.label in only)}
    for variant in study.variants:
        try:
            found = _runs(study, scale, folder, variant, presets)
            found[0].config(scale)  # that of other seeds differs in nothing that is checked
        except (TypeError, ValueError) as error:
            if not only or variant.label in asked:
                raise ValueError(f"{variant.label}: {error}") from None
            impossible[variant.label] = f"cannot run: {error}"
            continue
        runs += found
    runs.sort(key=lambda run: study.seeds.index(run.seed))  # every line once before any twice: a table from early on
    return Plan(study, scale, folder, tuple(runs), tuple(only)).without(impossible)


def _runs(study: Study, scale: Scale, folder: Path, variant: Variant, presets: str | Path | None) -> list[Run]:
    """The runs of one line, a seed each."""
    preset = _preset(scale, variant, presets) if study.presets else None
    kept = {} if preset is None else _tuned(preset, scale, variant)
    budget = NO_TUNING if preset is None else str(preset.about.get("budget", PUBLISHED_VALUES))
    changed = {name: variant.options[name] for name in PARTS if name in variant.options}
    if preset is not None and not changed.items() <= preset.options.items():
        budget = f"{budget}; tuned before a part was replaced"
    source = variant.scorer_from
    return [
        Run(
            name=f"{variant.label}-s{seed}",
            method=variant.method,
            options=kept | dict(variant.options),
            seed=seed,
            folder=folder / "runs" / folder_name(variant.label, seed),
            label=variant.label,
            budget=budget,
            start=variant.start,
            scorer_from=None if source is None else folder / "runs" / folder_name(source, seed),
        )
        for seed in study.seeds
    ]


def _preset(scale: Scale, variant: Variant, folder: str | Path | None) -> Preset | None:
    method = variant.method
    if folder is None:
        return find_preset(scale.presets or scale.name, method) or _lent(scale, method)
    path = _preset_file(variant, Path(folder))
    if path is None:
        return None
    preset = read_preset(path)
    if preset.method != method:
        raise ValueError(f"{path} is a preset of {preset.method}, not of {method}.")
    return preset


def _preset_file(variant: Variant, folder: Path) -> Path | None:
    """The file of a line's own values, else of its method's; None where there is neither."""
    files = (folder / f"{name}.yaml" for name in (line_name(variant.label), variant.method))
    return next((file for file in files if file.is_file()), None)


def _lent(scale: Scale, method: str) -> Preset | None:
    """For a method without tuned values at a scale: those of the one whose published values it takes everywhere else."""
    row = METHODS.get(method)
    found = None if row is None or row.lender is None else find_preset(scale.presets or scale.name, row.lender)
    if found is None:
        return None
    taken, numbers = set(recipe(method).options), part_options()
    options = {name: value for name, value in found.options.items() if name not in numbers or name in taken}
    budget = f"those of {found.method}: {found.about.get('budget', PUBLISHED_VALUES)}"
    return replace(found, method=method, options=options | {"method": method}, about={**found.about, "budget": budget})


def _tuned(preset: Preset, scale: Scale, variant: Variant) -> dict[str, Any]:
    """A preset's options that a line starts from.

    What a scale sets beside the searched numbers is shared by all of its methods, whatever a preset of another scale was
    tuned with. Numbers of a part that the line replaces are left behind.
    """
    searched = {name for name, option in part_options().items() if option.number or option.search is not None}
    kept = {k: v for k, v in preset.options.items() if k in searched or k not in ("method", *scale.training)}
    parts = {name: variant.options[name] for name in PARTS if name in variant.options}
    if not parts:
        return kept
    decided = recipe(variant.method, **parts)
    taken = set(decided.options)
    return {name: value for name, value in kept.items() if name not in searched or name in taken}


def line_name(label: str) -> str:
    """A file's name for a label: readable, and different for different labels."""
    plain = re.sub(r"[^\w.+=-]+", "_", label).strip("_")
    return plain if plain == label else f"{plain}-{short_hash(label)[:6]}"


def folder_name(label: str, seed: int) -> str:
    """The folder of a line's run."""
    return f"{line_name(label)}-s{seed}"


def described(plan: Plan, command: str, runs: Sequence[Run], failed: Mapping[str, str]) -> dict[str, Any]:
    """The study as `study.json` keeps it.

    Args:
        runs: those that are in its tables.
        failed: reasons by name.
    """
    return {
        "schema": "atwu.study/1",
        "name": plan.study.name,
        "title": plan.study.title,
        "about": plan.study.about,
        "command": command,
        "scale": asdict(plan.scale),
        "seeds": list(plan.study.seeds),
        "metrics": list(plan.metrics),
        "budget": replace(plan, runs=tuple(runs)).budget,
        "runs": [run.folder.name for run in runs],
        "published": plan.study.published.get(plan.scale.name, plan.study.published.get("default")),
        "variants": [
            {"label": run.label, "method": run.method, "options": dict(run.options), "budget": run.budget}
            for run in plan.runs
            if run.seed == plan.study.seeds[0]
        ],
        "failed": failed,
        "left_out": plan.left_out,
    }
