"""Plan a study at a setting: options and folders of its runs, which runs are finished, and an estimate of the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._file_reading import prefix_errors, read_json
from atwu._files import check_output_folder
from atwu._names import lookup
from atwu.benchmarks.base import Benchmark
from atwu.evaluation.columns import FORGET, HOLDOUT, RETAIN, TASKS
from atwu.evaluation.registry import EvaluateConfig, all_metrics, selected_metrics
from atwu.experiments.benchmark_settings import BenchmarkSetting, find_setting
from atwu.experiments.experiment_run import COMPONENT_KINDS, TIMING_NAME, ExperimentRun
from atwu.experiments.study_file import Study, Variant, parse_seeds, read_study
from atwu.experiments.study_models import has_retain_only, missing_requirement
from atwu.methods.component_registry import component_options
from atwu.methods.method_table import METHODS
from atwu.methods.presets import Preset, shipped_presets
from atwu.methods.recipe import recipe
from atwu.training.config import read_preset

DEFAULT_SETTING = "people-small"
PUBLISHED_VALUES = "published values"
NO_TUNING = "published values, with the same learning rate for all: no method was tuned at this setting"


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A study at a setting, in a folder."""

    study: Study
    setting: BenchmarkSetting
    folder: Path
    runs: tuple[ExperimentRun, ...] = field(repr=False)
    asked: tuple[str, ...] = ()
    """Labels of the variants to run; empty for all."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Variants and groups of metrics that are not possible here -> why."""

    @property
    def now(self) -> StudyPlan:
        """Return the plan of the variants to run, with those whose scorers they start from."""
        if not self.asked:
            return self
        wanted = [run for run in self.runs if run.label in self.asked]
        sources = [run.scorer_from for run in wanted]
        # A run that starts from the scorer of another one cannot be done without it.
        kept = [run for run in self.runs if run in wanted or run.folder in sources]
        return replace(self, runs=tuple(kept))

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.study.metrics or self.setting.metrics

    @property
    def budget(self) -> str:
        """Tuning budget of the compared values, as stated in every table; names variants with another budget."""
        budgets: dict[str, dict[str, None]] = {}
        for run in self.runs:
            budgets.setdefault(run.budget, {})[run.label] = None
        if len(budgets) < 2:
            return "".join(budgets)
        # The budget of most variants first; a reader compares the others with it.
        first, *others = sorted(budgets.items(), key=lambda entry: -len(entry[1]))
        return f"{first[0]}; exceptions: " + "; ".join(f"{', '.join(labels)} ({text})" for text, labels in others)

    def seconds_per_run(self) -> tuple[float, str]:
        """Return the mean duration of finished runs, or the setting's estimate, and its source."""
        files = [run.folder / TIMING_NAME for run in self.runs]
        timings = [read_json(file) for file in files if file.is_file()]
        if timings:
            total = sum(timing["unlearn"] + timing["measure"] for timing in timings)
            return total / len(timings), f"mean of {len(timings)} finished runs"
        return self.setting.seconds, f"estimate for this setting, {self.setting.hardware}"

    def source(self, run: ExperimentRun) -> ExperimentRun | None:
        return next((other for other in self.runs if other.folder == run.scorer_from), None)

    def possible_with(self, benchmark: Benchmark) -> StudyPlan:
        """Drop variants, and metrics of the setting, that the benchmark's rows do not support."""
        reasons: dict[str, str] = {}
        for run in self.runs:
            if run.label in reasons:
                continue
            if run.start is not None and not has_retain_only(self.setting):
                reasons[run.label] = f"it starts from the retain-only model, which {self.setting.name} does not have"
                continue
            reason = missing_requirement(run.config(self.setting), benchmark)
            if reason is not None:
                reasons[run.label] = f"it {reason}"
        setting, groups = self._measurable(benchmark)
        reasons |= {
            variant.label: f"it uses the scorer of {variant.scorer_from}, which is left out"
            for variant in self.study.variants
            if variant.scorer_from in reasons
        }
        # What was not asked for is not reported as left out.
        asked = {run.label for run in self.now.runs}
        left_out = {label: reason for label, reason in reasons.items() if label in asked} | groups
        runs = tuple(run for run in self.runs if run.label not in reasons)
        return replace(self, runs=runs, setting=setting, left_out=left_out)

    def _measurable(self, benchmark: Benchmark) -> tuple[BenchmarkSetting, dict[str, str]]:
        """Return the setting with the groups of metrics that the benchmark supports, and why others are dropped."""
        rows_of = {FORGET: benchmark.forget, RETAIN: benchmark.retain, HOLDOUT: benchmark.holdout}
        sets = {name for name, rows in {**rows_of, **benchmark.extra_retain}.items() if rows}
        if self.setting.evaluation.get("tasks"):
            sets.add(TASKS)
        if benchmark.probes is not None:
            sets.add(benchmark.probes.name)
        has_models = has_retain_only(self.setting)
        if self.study.metrics is not None:
            selected_metrics(self.study.metrics, sets=sets, weights=True, reference_models=has_models)
            return self.setting, {}
        # A setting lists what is wanted if it can be had; what a study lists itself must be possible.
        groups: list[str] = []
        without: dict[str, str] = {}
        for name in self.setting.metrics:
            try:
                groups += selected_metrics([name], sets=sets, weights=True, reference_models=has_models)
            except ValueError as error:
                without[f"the group {name}"] = str(error)
        return replace(self.setting, metrics=tuple(groups)), without


def plan(
    study: Study,
    setting: BenchmarkSetting,
    folder: str | Path,
    *,
    presets: str | Path | None = None,
    only: Sequence[str] = (),
) -> StudyPlan:
    """Plan every run, or the variants `only`, and check its options, before any work starts."""
    folder, study = Path(folder), study.at(setting.name)
    labels = [variant.label for variant in study.variants]
    unknown = [label for label in only if label not in labels]
    if unknown:
        raise ValueError(f"the study has no variant {unknown[0]!r}; it has {', '.join(labels)}.")
    if presets is not None:
        if not study.presets:
            raise ValueError(f"the study sets `presets: false`; leave --presets {presets} out, or remove this key.")
        if not Path(presets).is_dir():
            raise ValueError(f"--presets {presets} is not a folder; give one that atwu tune wrote.")
        if not any(_preset_file(variant, Path(presets)) for variant in study.variants):
            raise ValueError(
                f"{presets} contains no preset LABEL.yaml or METHOD.yaml of this study; atwu tune --study writes them."
            )
    try:
        EvaluateConfig(**setting.evaluation)
    except ValueError as error:
        raise ValueError(f"evaluation of setting {setting.name}: {error}") from None
    # A typing error is found before rows are loaded.
    for name in study.metrics or setting.metrics:
        lookup("metrics", name, all_metrics())
    runs = []
    for variant in study.variants:
        try:
            of_variant = _runs(study, setting, folder, variant, presets)
            of_variant[0].config(setting)  # other seeds have the same options
        except (TypeError, ValueError) as error:
            raise ValueError(f"{variant.label}: {error}") from None
        runs += of_variant
    runs.sort(key=lambda run: study.seeds.index(run.seed))  # one seed after another: a complete table early
    return StudyPlan(study, setting, folder, tuple(runs), tuple(only))


def _runs(
    study: Study, setting: BenchmarkSetting, folder: Path, variant: Variant, presets: str | Path | None
) -> list[ExperimentRun]:
    preset = None
    if study.presets:
        preset = _preset(setting, variant, presets)
    tuned: dict[str, Any] = {}
    budget = NO_TUNING
    if preset is not None:
        tuned = _tuned_options(preset, setting, variant)
        budget = str(preset.about.get("budget", PUBLISHED_VALUES))
        # Values that were tuned for other components: the tables must say so.
        changed = {name: variant.options[name] for name in COMPONENT_KINDS if name in variant.options}
        if not changed.items() <= preset.options.items():
            budget = f"{budget}; tuned before a component was replaced"
    runs = []
    for seed in study.seeds:
        run = ExperimentRun(
            name=f"{variant.label}-s{seed}",
            method=variant.method,
            options=tuned | dict(variant.options),
            seed=seed,
            folder=folder / "runs" / f"{variant_name(variant.label)}-s{seed}",
            label=variant.label,
            budget=budget,
            start=variant.start,
        )
        if variant.scorer_from is not None:
            run = replace(run, scorer_from=folder / "runs" / f"{variant_name(variant.scorer_from)}-s{seed}")
        runs.append(run)
    return runs


def _preset(setting: BenchmarkSetting, variant: Variant, folder: str | Path | None) -> Preset | None:
    """Return the values that a variant starts from: those of a file, of the setting, or of the method whose published
    values its method uses."""
    method = variant.method
    if folder is not None:
        path = _preset_file(variant, Path(folder))
        if path is None:
            return None
        preset = read_preset(path)
        # A label may be the name of another method.
        if preset.method != method:
            raise ValueError(f"{path} is a preset of {preset.method}, not of {method}.")
        return preset
    row = METHODS.get(method)
    shipped = shipped_presets(setting.presets or setting.name)
    own = shipped.get(method)
    if own or row is None or row.values_from is None:
        return own
    # A method without published values, such as ATWU-NPO, is run with those of the method that it extends.
    taken_over = shipped.get(row.values_from)
    if taken_over is None:
        return None
    taken, numbers = set(recipe(method).options), component_options()
    options = {name: value for name, value in taken_over.options.items() if name not in numbers or name in taken}
    budget = f"values of {taken_over.method}: {taken_over.about.get('budget', PUBLISHED_VALUES)}"
    return replace(
        taken_over, method=method, options=options | {"method": method}, about={**taken_over.about, "budget": budget}
    )


def _preset_file(variant: Variant, folder: Path) -> Path | None:
    """Return the preset file of a variant, or else of its method; None if neither exists."""
    files = (folder / f"{name}.yaml" for name in (variant_name(variant.label), variant.method))
    return next((file for file in files if file.is_file()), None)


def _tuned_options(preset: Preset, setting: BenchmarkSetting, variant: Variant) -> dict[str, Any]:
    """Return the options of a preset that a variant starts from.

    Options that the setting shares among all its methods override those of a preset. Options of a component that the
    variant replaces are dropped.
    """
    searched = {name for name, option in component_options().items() if option.number or option.search is not None}
    parts = {name: variant.options[name] for name in COMPONENT_KINDS if name in variant.options}
    taken = recipe(variant.method, **parts).options
    tuned = {}
    for name, value in preset.options.items():
        if name in searched:
            kept = not parts or name in taken
        else:
            kept = name != "method" and name not in setting.training
        if kept:
            tuned[name] = value
    return tuned


def variant_name(label: str) -> str:
    """File name of a label: readable, and unique."""
    plain = re.sub(r"[^\w.+=-]+", "_", label).strip("_")
    if plain == label:
        return plain
    return f"{plain}-{short_hash(label)[:6]}"  # two labels may differ in the replaced characters only


def study_record(
    plan: StudyPlan, command: str, runs: Sequence[ExperimentRun], failed: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "schema": "atwu.study/2",
        "name": plan.study.name,
        "title": plan.study.title,
        "about": plan.study.about,
        "command": command,
        "setting": asdict(plan.setting),
        "seeds": list(plan.study.seeds),
        "metrics": list(plan.metrics),
        "budget": replace(plan, runs=tuple(runs)).budget,
        "runs": [run.folder.name for run in runs],
        "published": plan.study.published.get(plan.setting.name, plan.study.published.get("default")),
        "variants": [
            {"label": run.label, "method": run.method, "options": dict(run.options), "budget": run.budget}
            for run in plan.runs
            if run.seed == plan.study.seeds[0]
        ],
        "failed": failed,
        "left_out": plan.left_out,
    }


def plan_study(
    study: str | Path,
    setting: str | None = None,
    *,
    output: Path | None = None,
    seeds: int | None = None,
    presets: Path | None = None,
    configurations: Sequence[str] = (),
    paraphrases: Sequence[str] = (),
    only: Sequence[str] = (),
) -> StudyPlan:
    """Plan a study: resolve defaults and check every option.

    Args:
        setting: setting to use; None for the study's own, else people-small.
        output: folder; None for runs/STUDY-SETTING.
        presets: folder with the user's preset files.
        configurations: configurations under which all variants run (`atwu.methods.recipe`).
        paraphrases: files with paraphrases of the evaluated questions, instead of the setting's.
        only: labels of the variants to run; empty for all.
    """
    with prefix_errors(study if Path(study).is_file() else None):
        written = read_study(study).under(configurations)
        if setting:
            chosen = find_setting(setting)
        else:
            chosen = written.setting or find_setting(DEFAULT_SETTING)
        missing = [file for file in paraphrases if not Path(file).is_file()]
        if missing:
            raise ValueError(f"--paraphrases {missing[0]} is not a file; give one that atwu rows paraphrases wrote.")
        if paraphrases:  # with one question per row, the setting does not ask for paraphrases
            asked = {name: value for name, value in chosen.evaluation.items() if (name, value) != ("paraphrases", 0)}
            chosen = replace(chosen, paraphrases=tuple(paraphrases), evaluation=asked)
        if seeds is not None:
            written = replace(written, seeds=parse_seeds(seeds), setting_seeds={})
        folder = output or Path("runs") / f"{written.name}-{chosen.name}"
        check_output_folder(folder)
        if (folder / "config.json").is_file():
            raise ValueError(f"{folder} is the folder of a model; choose another --output.")
        return plan(written, chosen, folder, presets=presets, only=only)
