"""A study as it is written: one YAML file of methods, what is varied, setting and seeds; and as it is meant: its variants."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from atwu._file_reading import prefix_errors, read_yaml
from atwu._names import lookup
from atwu.experiments.benchmark_settings import BENCHMARK_SETTINGS, BenchmarkSetting, find_setting, setting_from
from atwu.experiments.published import published_table
from atwu.methods.configurations import CONFIGURATIONS
from atwu.methods.method_table import METHODS
from atwu.methods.plugins import load_plugins
from atwu.report.table_values import REFERENCE_MODELS

BUILT_IN = Path(__file__).with_name("library")
"""The studies that come with the package, one YAML each."""

ALL = "all"
LONGEST_LABEL = 200
MOST_LINES, MOST_SEEDS = 1000, 1000
"""More is a slip of the keyboard."""

_KEYS = ("title", "about", "methods", "vary", "seeds", "setting", "metrics", "published", "presets", "trace", "probe")
_OWN_KEYS = ("label", "method", "scorer_from", "start")
_STARTS = "retain-only"
_SWITCHES = {"presets": True, "trace": True, "probe": False}


@dataclass(frozen=True, slots=True)
class Variant:
    """One line of a study's table."""

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `UnlearnConfig` that differ from the setting's and the preset's."""
    scorer_from: str | None = None
    """Label of the variant whose finished scorer, of the same seed, this one starts from."""
    start: str | None = None
    """`retain-only` to start from that model; None for the setting's target."""


@dataclass(frozen=True, slots=True)
class Study:
    """What is to be run."""

    name: str
    title: str
    about: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    setting: BenchmarkSetting | None
    """None: to be chosen when it is run."""
    metrics: tuple[str, ...] | None
    """Groups of metrics; None for those of the setting."""
    published: Mapping[str, str]
    """Setting -> table of published results to compare with; `default` for every other setting."""
    presets: bool
    """Start from the setting's tuned values where there are any."""
    trace: bool
    """Record word scores while training."""
    probe: bool
    """Also measure what a linear probe, trained on the annotation, finds in the starting model's states."""
    setting_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Setting -> seeds, where they differ from `seeds`."""

    def at(self, setting: str) -> Study:
        """The study with the seeds it has at a setting.

        Raises:
            ValueError: `seeds` or `published` names another setting that there is not.
        """
        known = dict.fromkeys(
            [*BENCHMARK_SETTINGS, setting, *([] if self.setting is None else [self.setting.name]), "default"]
        )
        for name in (*self.setting_seeds, *self.published):
            lookup("setting in seeds or published", name, known)
        return replace(self, seeds=self.setting_seeds.get(setting, self.seeds), setting_seeds={})

    def with_seeds(self, count: int) -> Study:
        """The same with the seeds 1 to `count`."""
        return replace(self, seeds=_seeds(count), setting_seeds={})

    def under(self, configurations: Sequence[str]) -> Study:
        """The same with every line under a whole configuration, or under several, side by side.

        Raises:
            ValueError: an unknown configuration, or a line that sets one itself.
        """
        for name in configurations:
            lookup("configuration", name, CONFIGURATIONS)
        if own := [variant.label for variant in self.variants if configurations and "configuration" in variant.options]:
            raise ValueError(f"{own[0]!r} sets its configuration itself; leave --configuration out.")
        if len(dict.fromkeys(configurations)) < 2:
            shown = dict.fromkeys(configurations, "")
        else:
            shown = {name: f", {name}" for name in configurations}
        lines = tuple(
            replace(
                variant,
                label=variant.label + more,
                options={**variant.options, "configuration": name},
                scorer_from=variant.scorer_from and variant.scorer_from + more,
            )
            for variant in self.variants
            for name, more in shown.items()
        )
        return replace(self, variants=lines) if lines else self


def library() -> dict[str, str]:
    """Names and titles of the built-in studies."""
    return {path.stem: str(_read(path).get("title", path.stem)) for path in sorted(BUILT_IN.glob("*.yaml"))}


def read_study(source: str | Path) -> Study:
    """Read a study: a YAML file, or a built-in one by name.

    Raises:
        FileNotFoundError: neither a file nor a built-in study.
        ValueError: unknown keys, methods or options; says what is allowed.
    """
    path = Path(source)
    if not path.is_file():
        path = BUILT_IN / f"{source}.yaml"
        if not path.is_file():
            names = ", ".join(entry.stem for entry in sorted(BUILT_IN.glob("*.yaml")))
            raise FileNotFoundError(f"no study {str(source)!r}: neither a file nor one of {names}.")
    values = _read(path)
    with prefix_errors(path):
        return _study(path.stem, values)


def _study(name: str, values: Mapping[str, Any]) -> Study:
    for key in values:
        lookup("key of a study", key, dict.fromkeys(_KEYS))
    setting, published, metrics = values.get("setting"), values.get("published") or {}, values.get("metrics")
    published = {"default": published} if isinstance(published, str) else published
    if not isinstance(published, Mapping):
        raise ValueError(f"published is the name of a table, or a table per setting, got {published!r:.60}.")
    for table in published.values():
        published_table(str(table))
    if metrics is not None and not (isinstance(metrics, list) and all(isinstance(name, str) for name in metrics)):
        raise ValueError(f"metrics is a list such as [memorization, judge], got {metrics!r:.60}.")
    seeds = values.get("seeds", 3)
    seeds = dict(seeds) if isinstance(seeds, Mapping) else {"default": seeds}
    switches = {key: values.get(key, default) for key, default in _SWITCHES.items()}
    for key, value in switches.items():
        if not isinstance(value, bool):
            raise ValueError(f"{key} is true or false, got {value!r:.60}.")
    return Study(
        name=name,
        title=str(values.get("title", name)),
        about=str(values.get("about", "")).strip(),
        variants=tuple(_variants(values.get("methods", ALL), values.get("vary") or {})),
        seeds=_seeds(seeds.pop("default", 3)),
        setting_seeds={str(place): _seeds(value) for place, value in seeds.items()},
        setting=_setting(setting),
        metrics=None if metrics is None else tuple(metrics),
        published=dict(published),
        **switches,
    )


def _read(path: Path) -> dict[str, Any]:
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path}: a study is a mapping with the keys {', '.join(_KEYS)}.")
    return values


def _setting(value: Any) -> BenchmarkSetting | None:
    if isinstance(value, Mapping):
        return setting_from(value)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"setting is a name or a mapping of its fields, got {value!r:.60}.")
    return None if value is None else find_setting(value)


def _seeds(value: Any) -> tuple[int, ...]:
    """A count n, for 1 to n, or the seeds themselves. Tuning chose its values on seed 0, which is no test of them."""
    if type(value) is int and 0 < value <= MOST_SEEDS:
        return tuple(range(1, value + 1))
    whole = isinstance(value, list) and all(type(seed) is int and 0 <= seed < 2**32 for seed in value)
    if whole and value and len(set(value)) == len(value) <= MOST_SEEDS:
        return tuple(value)
    raise ValueError(
        f"seeds is a count such as 3 (at most {MOST_SEEDS}), or a list of different ones from 0 to 2^32 - 1 such as "
        f"[1, 2, 3], got {value!r:.60}."
    )


def _variants(methods: Any, vary: Mapping[str, Any]) -> list[Variant]:
    """Every method with every combination of what is varied.

    Raises:
        ValueError: unknown methods, no methods, or two variants of one label.
    """
    load_plugins()
    listed = list(METHODS) if methods == ALL else methods
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"methods is 'all' or a list of names or mappings, got {methods!r:.60}.")
    base = _told_apart([_variant(entry) for entry in listed])
    if not isinstance(vary, Mapping):
        raise ValueError(f"vary gives a list of values per option, such as {{rho: [0.1, 0.3]}}, got {vary!r:.60}.")
    unlisted = [name for name, values in vary.items() if not isinstance(values, list) or not values]
    if unlisted:
        raise ValueError(f"vary: {unlisted[0]} needs a list of values, got {vary[unlisted[0]]!r:.60}.")
    if (count := len(base) * math.prod(map(len, vary.values()))) > MOST_LINES:
        raise ValueError(f"methods and vary make {count} lines; at most {MOST_LINES}.")
    found = []
    for variant in base:
        for combination in itertools.product(*vary.values()):
            changes = dict(zip(vary, combination, strict=True))

            def labelled(of: str, changes: Mapping[str, Any] = changes) -> str:
                parts = [of] if len(base) > 1 or not changes else []
                return ", ".join(parts + [f"{name}={_short(value)}" for name, value in changes.items()])

            source = None if variant.scorer_from is None else labelled(variant.scorer_from)
            options = {**variant.options, **changes}
            found.append(replace(variant, label=labelled(variant.label), options=options, scorer_from=source))
    labels = [variant.label for variant in found]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    unfit = [label for label in labels if not label.isprintable() or len(label) > LONGEST_LABEL]
    if unfit:
        raise ValueError(f"{unfit[0]!r:.60} is no label: at most {LONGEST_LABEL} characters on one line.")
    reserved = sorted(set(labels) & set(REFERENCE_MODELS))
    if reserved:
        raise ValueError(f"no line can be called {reserved[0]!r}, as the table calls a model that is compared with.")
    if twice:
        raise ValueError(f"two lines are called {twice[0]!r}; give one a label of its own.")
    sources = {variant.label: variant.scorer_from for variant in found}
    for label, source in sources.items():
        if source is None:
            continue
        if source not in sources:
            raise ValueError(f"{label!r} takes the scorer of {source!r}, which is not in the study.")
        if sources[source] is not None:
            raise ValueError(
                f"{label!r} takes the scorer of {source!r}, which takes one itself; name a line that trains its own."
            )
    return found


def _variant(entry: Any) -> Variant:
    if isinstance(entry, str):
        entry = {"method": entry}
    if not isinstance(entry, Mapping) or "method" not in entry:
        raise ValueError(f"a line of methods is a name, or a mapping with method and options, got {entry!r:.60}.")
    method = str(entry["method"])
    lookup("method", method, METHODS)
    options = {name: value for name, value in entry.items() if name not in _OWN_KEYS}
    label, start = entry.get("label"), entry.get("start")
    if start not in (None, _STARTS):
        raise ValueError(f"start is {_STARTS}, or left out for the starting model, got {start!r:.60}.")
    return Variant("" if label is None else str(label), method, options, entry.get("scorer_from"), start)


def _told_apart(lines: list[Variant]) -> list[Variant]:
    """The lines, of which those without a label are called by their method and what sets them apart from others of it."""
    found = []
    for line in lines:
        own = _as_written(line)
        others = [_as_written(other) for other in lines if other.method == line.method and not other.label]
        apart = [name for name in own if any(own[name] != other.get(name) for other in others)]
        more = f" ({', '.join(f'{name}={_short(own[name])}' for name in apart)})" if apart else ""
        found.append(line if line.label else replace(line, label=line.method + more))
    return found


def _as_written(line: Variant) -> dict[str, Any]:
    own = {"scorer_from": line.scorer_from, "start": line.start}
    return {**line.options} | {name: value for name, value in own.items() if value is not None}


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:60]
