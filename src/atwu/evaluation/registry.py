"""Registry of all metrics: those in `metrics/` and those registered by other packages."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeGuard, TypeVar

from atwu._extras import load_entry_points
from atwu._names import Registry, did_you_mean
from atwu.evaluation.columns import FORGET_OR_RETAIN, PROBE_SETS, SPECIAL_SETS, TASKS, Column
from atwu.evaluation.intervals import ValueRange
from atwu.evaluation.metric import SHARED_SETTINGS, Metric, MetricSetting

METRIC_ENTRY_POINTS = "atwu.metrics"
"""Entry point group; each entry names a `Metric`, or a function that registers some."""
_METRICS = Registry[type[Metric]](
    "metric",
    {
        "memorization": "atwu.evaluation.metrics.memorization:Memorization",
        "scores": "atwu.evaluation.metrics.score_auroc:ScoreAurocMetric",
        "rouge": "atwu.evaluation.metrics.rouge:Rouge",
        "key_tokens": "atwu.evaluation.metrics.key_tokens:KeyTokens",
        "uds": "atwu.evaluation.metrics.unlearning_depth:UnlearningDepth",
        "forms": "atwu.evaluation.metrics.recall_by_form:QuestionForms",
        "fluency": "atwu.evaluation.metrics.fluency:Fluency",
        "judge": "atwu.evaluation.metrics.judge_scores:JudgeScores",
        "truth_ratio": "atwu.evaluation.metrics.truth_ratio:TruthRatio",
        "membership": "atwu.evaluation.metrics.membership:Membership",
        "gradient_norm": "atwu.evaluation.metrics.membership:GradientNorm",
        "open_ended": "atwu.evaluation.metrics.fluency:OpenEnded",
        "general_text": "atwu.evaluation.metrics.fluency:GeneralText",
        "families": "atwu.evaluation.metrics.families:Families",
        "sampling": "atwu.evaluation.metrics.judge_scores:BestOfN",
        "rwku": "atwu.evaluation.metrics.rouge:Rwku",
        "lume": "atwu.evaluation.metrics.benchmark_scores:Lume",
        "muse": "atwu.evaluation.metrics.benchmark_scores:Muse",
        "knowundo": "atwu.evaluation.metrics.benchmark_scores:KnowUnDo",
        "tasks": "atwu.evaluation.metrics.tasks:Tasks",
        "relearning": "atwu.evaluation.metrics.weight_attacks:Relearning",
        "quantization": "atwu.evaluation.metrics.weight_attacks:QuantizationAttack",
    },
)
"""In the order of tables; those that are added come last."""
_M = TypeVar("_M", bound=type[Metric])


@functools.cache
def _load_plugins() -> None:
    load_entry_points(METRIC_ENTRY_POINTS, _add_plugin)


def all_metrics() -> Registry[type[Metric]]:
    """Return every metric by name, in table order."""
    # Not on import, since the modules of other packages import this one.
    _load_plugins()
    return _METRICS


def register_metric(metric: _M) -> _M:
    """Add a metric to `evaluate`, `compare` and `report`. Usable as a decorator.

    Raises:
        ValueError: A name is taken or invalid; nothing is added.
    """
    _add(metric)
    return metric


def _add(metric: type[Metric]) -> None:
    if not _is_metric(metric):
        raise ValueError(f"a metric must be a subclass of atwu.Metric, got {metric!r:.60}.")
    if metric.name == "all":
        raise ValueError("a metric cannot be called 'all', which stands for every metric; choose another name.")
    if not getattr(metric, "about", ""):
        raise ValueError(f"metric {metric.name!r} has no description; set its attribute `about`.")
    # All are checked before the metric is added, so that an error adds nothing.
    every = (*_METRICS.values(), metric)
    settings = [setting.name for known in every for setting in known.settings]
    settings += [setting.name for setting in SHARED_SETTINGS]
    columns = [column.name for known in every for column in known.columns]
    for kind, names in (("setting", settings), ("column", columns)):
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise ValueError(f"{kind} {twice[0]!r} already exists; metric {metric.name!r} needs another name.")
    # A default that its own checks refuse would fail at every evaluation.
    for setting in metric.settings:
        setting.value(setting.default, strict=True)
    _METRICS.add(metric.name, metric)


def _is_metric(entry: Any) -> TypeGuard[type[Metric]]:
    return isinstance(entry, type) and issubclass(entry, Metric)


def _add_plugin(entry: Any) -> None:
    """Add a metric of an installed package, or call its function that registers some."""
    if not _is_metric(entry):
        entry()
    elif _METRICS.get(entry.name) is not entry:  # its module may have registered it
        _add(entry)


def all_settings() -> tuple[MetricSetting, ...]:
    """Return every setting of an evaluation: shared settings first, then those of each metric."""
    return (
        *SHARED_SETTINGS,
        *(replace(setting, metric=name) for name, metric in all_metrics().items() for setting in metric.settings),
    )


class EvaluateConfig(SimpleNamespace):
    """Settings of one evaluation run; see `all_settings()` for names, defaults and help texts.

    Defaults follow the ATWU paper where it states them.
    """

    # No dataclass: other packages add settings with their metrics.

    def __init__(self, **chosen: Any) -> None:
        known = {setting.name: setting for setting in all_settings()}
        for name in chosen:
            if name not in known:
                hint = did_you_mean(name, known, f" Settings: {', '.join(known)}.")
                raise ValueError(f"unknown evaluation setting {name!r}.{hint}")
        super().__init__(**{name: setting.default for name, setting in known.items()})
        for name, value in chosen.items():
            setattr(self, name, known[name].value(value, strict=True))

    @property
    def values(self) -> Mapping[str, Any]:
        return vars(self)


def selected_metrics(
    names: Sequence[str] | str | None,
    *,
    sets: Collection[str],
    weights: bool,
    plain: bool = True,
    references: bool = False,
    reference_models: bool = False,
) -> list[str]:
    """Return the names of the metrics to run, in table order.

    Args:
        names: Metric names, "all" for every metric whose sets are given, or None for the default metrics.
        weights: Whether the model's weights are available.
        plain: Whether the weights are not quantized.
        references: Leave out metrics that do not run on reference models.
        reference_models: Whether the weights of the original and the retain-only model are available.
    """
    metrics = all_metrics()
    # Every set that is not a special one is a forget or a retain set.
    have = set(sets)
    if have - set(SPECIAL_SETS):
        have.add(FORGET_OR_RETAIN)

    def lacking(metric: type[Metric]) -> str | None:
        missing = [need for need in metric.needs if need not in have]
        if missing:
            return f"{' and '.join(missing)} rows, which are not given"
        if metric.needs_weights and not weights:
            return "the model's weights; a served model only generates answers"
        if metric.needs_plain_weights and not plain:
            return "weights that are not quantized"
        # A reference model itself needs none: the metric is left out below.
        if metric.needs_reference_models and not (reference_models or references):
            return "the weights of the original and the retain-only model; give both as models, not as result files"
        return None

    if names is None or names == "all":
        fitting = [name for name, metric in metrics.items() if lacking(metric) is None]
        wanted = [name for name in fitting if names == "all" or metrics[name].default]
    else:
        wanted = list(names)
        if isinstance(names, str):
            wanted = [names]
        if not wanted:
            raise ValueError("no metric is named; leave metrics out for the default ones, or name some.")
        for name in wanted:
            what = lacking(find_metric(name))
            if what is not None:
                raise ValueError(f"metric {name!r} needs {what}.")
    # In table order, whatever the order of the names.
    return [
        name for name, metric in metrics.items() if name in wanted and (metric.runs_on_references or not references)
    ]


def check_inputs_used(names: Collection[str], *, sets: Collection[str], weights: bool) -> None:
    """Reject probes or tasks that no selected metric uses."""
    for unused in (*PROBE_SETS, TASKS):
        if unused in sets and unused not in names:
            selected_metrics(unused, sets=sets, weights=weights)  # says what else the metric of that name lacks
            raise ValueError(
                f"{unused} is given, but the metrics {', '.join(names) or 'selected'} do not use it; add the metric "
                f"{unused} or leave it out."
            )


def check_installed(names: Iterable[str], config: SimpleNamespace) -> None:
    for name in names:
        find_metric(name).check(config)


def find_metric(name: str) -> type[Metric]:
    return all_metrics().find(name)


def find_column(name: str, split: str | None = None) -> tuple[type[Metric], Column, str] | None:
    """Return the metric and column that a number of a result belongs to, and the value of the column's placeholder.

    The placeholder is "" for a column without one. None if no metric records the name on this set (None: on any set but
    `tasks`, where any name is possible).
    """
    with_placeholder = None
    for metric in all_metrics().values():
        for column in metric.columns:
            possible = TASKS not in column.sets
            if split is not None:
                possible = column.on(split)
            field = column.field(name)
            if not possible or field is None:
                continue
            # An exact name comes before one with a placeholder.
            if not field:
                return metric, column, field
            with_placeholder = with_placeholder or (metric, column, field)
    return with_placeholder


def column_of(name: str, split: str | None = None) -> Column | None:
    """Return the column of a number, which has its definition, range and function; None if no metric records it."""
    definition = find_column(name, split)
    if definition is None:
        return None
    return definition[1]


def value_range(name: str, split: str) -> ValueRange:
    """Return the smallest and largest possible value of a number; (None, None) if no metric records it on this set."""
    column = column_of(name, split)
    if column is None:
        return (None, None)
    return column.range


def short_name(name: str, split: str | None = None) -> str:
    """Return the short name of a number, for table heads."""
    definition = find_column(name, split)
    # A name of capitals, such as J_P, is a name as it is; one of words is read as words.
    if definition is None and name.islower():
        return name.replace("_", " ")
    if definition is None:
        return name
    _, column, field = definition
    return re.sub(r"\{\w+\}", lambda _: field.replace("_", " "), column.title)
