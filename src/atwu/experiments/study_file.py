"""Study files: one YAML file with methods, varied options, setting and seeds, read as a list of variants."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from atwu._file_reading import prefix_errors, read_mapping
from atwu._names import did_you_mean, lookup
from atwu.experiments.benchmark_settings import BENCHMARK_SETTINGS, BenchmarkSetting, find_setting, setting_from
from atwu.experiments.published_comparison import published_table
from atwu.methods.component_registry import load_plugins
from atwu.methods.method_table import METHODS
from atwu.methods.recipe import CONFIGURATIONS
from atwu.report.metric_table import REFERENCE_MODELS

BUILT_IN = Path(__file__).with_name("studies")
"""Built-in studies, one YAML file each."""

ALL = "all"
MAX_SEEDS = 1000
"""Upper limit that catches typing errors."""

_KEYS = ("title", "about", "methods", "vary", "seeds", "setting", "metrics", "published", "presets")
_OWN_KEYS = ("label", "method", "scorer_from", "start")
_STARTS = "retain-only"


@dataclass(frozen=True, slots=True)
class Variant:
    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `UnlearnConfig` that differ from the setting's and the preset's."""
    scorer_from: str | None = None
    """Label of the variant from whose trained scorer, of the same seed, this one starts."""
    start: str | None = None
    """`retain-only` to start from that model; None for the setting's target."""


@dataclass(frozen=True, slots=True)
class Study:
    name: str
    title: str
    about: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    setting: BenchmarkSetting | None
    """None: chosen when the study is run."""
    metrics: tuple[str, ...] | None
    """Groups of metrics; None for those of the setting."""
    published: Mapping[str, str]
    """Setting -> published table to compare with; `default` applies to all other settings."""
    presets: bool
    """Start from the setting's tuned values if there are any."""
    setting_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Setting -> seeds, if they differ from `seeds`."""

    def at(self, setting: str) -> Study:
        """Return the study with its seeds at a setting."""
        settings = [*BENCHMARK_SETTINGS, setting]
        if self.setting is not None:
            settings.append(self.setting.name)
        known = dict.fromkeys([*settings, "default"])
        for name in (*self.setting_seeds, *self.published):
            lookup("setting in seeds or published", name, known)
        return replace(self, seeds=self.setting_seeds.get(setting, self.seeds), setting_seeds={})

    def under(self, configurations: Sequence[str]) -> Study:
        """Return the study with every variant under one configuration, or under each of several."""
        for name in configurations:
            lookup("configuration", name, CONFIGURATIONS)
        # A variant that is defined by its configuration would be compared under another one.
        own = [variant.label for variant in self.variants if "configuration" in variant.options]
        if own and configurations:
            raise ValueError(
                f"variant {own[0]!r} sets its own configuration; leave out --configuration, or remove it from the variant."
            )
        if not configurations:
            return self
        variants = []
        for variant, name in itertools.product(self.variants, dict.fromkeys(configurations)):
            label, source = variant.label, variant.scorer_from
            if len(set(configurations)) > 1:
                label = f"{label}, {name}"
                if source is not None:  # the scorer of the same configuration
                    source = f"{source}, {name}"
            options = {**variant.options, "configuration": name}
            variants.append(replace(variant, label=label, options=options, scorer_from=source))
        return replace(self, variants=tuple(variants))


def library() -> dict[str, str]:
    return {path.stem: str(read_mapping(path).get("title", path.stem)) for path in sorted(BUILT_IN.glob("*.yaml"))}


def read_study(source: str | Path) -> Study:
    """Read a study: a YAML file, or a built-in one by name."""
    path = Path(source)
    if not path.is_file():
        path = BUILT_IN / f"{source}.yaml"
        if not path.is_file():
            names = [entry.stem for entry in sorted(BUILT_IN.glob("*.yaml"))]
            hint = did_you_mean(source, names)
            raise FileNotFoundError(f"no study {str(source)!r}: not a file and not one of {', '.join(names)}.{hint}")
    values = read_mapping(path)
    with prefix_errors(path):
        return _study(path.stem, values)


def _study(name: str, values: Mapping[str, Any]) -> Study:
    for key in values:
        lookup("key of a study", key, dict.fromkeys(_KEYS))
    setting, published, metrics = values.get("setting"), values.get("published") or {}, values.get("metrics")
    if isinstance(setting, str):
        setting = find_setting(setting)
    elif isinstance(setting, Mapping):
        setting = setting_from(setting)
    elif setting is not None:
        raise ValueError(f"setting must be a name or a mapping of its fields, got {setting!r:.60}.")
    # One table for every setting, as most studies write it.
    if isinstance(published, str):
        published = {"default": published}
    if not isinstance(published, Mapping):
        raise ValueError(f"published must be the name of a table, or a table per setting, got {published!r:.60}.")
    for table in published.values():
        published_table(str(table))
    if metrics is not None and not (
        isinstance(metrics, list) and metrics and all(isinstance(name, str) for name in metrics)
    ):
        raise ValueError(f"metrics must be a list such as [memorization, judge], got {metrics!r:.60}.")
    seeds = values.get("seeds", 3)
    if not isinstance(seeds, Mapping):
        seeds = {"default": seeds}
    presets = values.get("presets", True)
    if not isinstance(presets, bool):
        raise ValueError(f"presets must be true or false, got {presets!r:.60}.")
    return Study(
        name=name,
        title=str(values.get("title", name)),
        about=str(values.get("about", "")).strip(),
        variants=tuple(_variants(values.get("methods", ALL), values.get("vary") or {})),
        seeds=parse_seeds(seeds.get("default", 3)),
        setting_seeds={str(name): parse_seeds(value) for name, value in seeds.items() if name != "default"},
        setting=setting,
        metrics=None if metrics is None else tuple(metrics),
        published=dict(published),
        presets=presets,
    )


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Parse seeds: a count n for 1 to n, or a list. Seed 0 is used for tuning and would bias the comparison."""
    # Not `isinstance`: True is an int, too.
    if type(value) is int and 0 < value <= MAX_SEEDS:
        return tuple(range(1, value + 1))
    whole = isinstance(value, list) and all(type(seed) is int and 0 <= seed < 2**32 for seed in value)
    if whole and value and len(set(value)) == len(value) <= MAX_SEEDS:
        return tuple(value)
    raise ValueError(
        f"seeds must be a count such as 3 (at most {MAX_SEEDS}), or a list of different ones from 0 to 2^32 - 1 "
        f"such as [1, 2, 3], got {value!r:.60}."
    )


def _variants(methods: Any, vary: Mapping[str, Any]) -> list[Variant]:
    """Combine every method with every combination of the varied options."""
    load_plugins()
    listed = list(METHODS) if methods == ALL else methods
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"methods must be 'all' or a list of names or mappings, got {methods!r:.60}.")
    base = [_variant(entry) for entry in listed]
    if not isinstance(vary, Mapping):
        raise ValueError(f"vary must give a list of values per option, such as {{rho: [0.1, 0.3]}}, got {vary!r:.60}.")
    unlisted = [name for name, values in vary.items() if not isinstance(values, list) or not values]
    if unlisted:
        raise ValueError(f"vary: {unlisted[0]} needs a list of values, got {vary[unlisted[0]]!r:.60}.")
    combined = []
    for variant, combination in itertools.product(base, itertools.product(*vary.values())):
        changes = dict(zip(vary, combination, strict=True))
        varied = [f"{name}={_short(value)}" for name, value in changes.items()]
        label, source = ", ".join([variant.label, *varied]), variant.scorer_from
        if source:
            source = ", ".join([source, *varied])
        if len(base) == 1 and varied:  # of a single method, the values alone name a variant
            label = ", ".join(varied)
            source = source and label
        options = {**variant.options, **changes}
        combined.append(replace(variant, label=label, options=options, scorer_from=source))
    for label, count in Counter(variant.label for variant in combined).items():
        # Reports find the reference models by these labels.
        if label in REFERENCE_MODELS:
            raise ValueError(f"label {label!r} is reserved for a reference model; choose another one.")
        if count > 1:
            raise ValueError(f"two variants have the label {label!r}; give one of them another label.")
    sources = {variant.label: variant.scorer_from for variant in combined}
    for label, source in sources.items():
        if source is None:
            continue
        if source not in sources:
            raise ValueError(f"{label!r} uses the scorer of {source!r}, which is not in the study.")
        if sources[source] is not None:
            raise ValueError(
                f"{label!r} uses the scorer of {source!r}, which uses another one itself; name a variant that "
                "trains its own scorer."
            )
    return combined


def _variant(entry: Any) -> Variant:
    if isinstance(entry, str):
        entry = {"method": entry}
    if not isinstance(entry, Mapping) or "method" not in entry:
        raise ValueError(
            f"an entry of methods must be a name, or a mapping with method and options, got {entry!r:.60}."
        )
    method = str(entry["method"])
    METHODS.find(method)
    options = {name: value for name, value in entry.items() if name not in _OWN_KEYS}
    start = entry.get("start")
    if start not in (None, _STARTS):
        raise ValueError(f"start must be {_STARTS}, or left out for the original model, got {start!r:.60}.")
    label = method
    if entry.get("label") is not None:
        label = str(entry["label"])
    return Variant(label, method, options, entry.get("scorer_from"), start)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)[:60]
