"""The panel: every metric there is, made from the files of `metrics/` and from what other packages register."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import pkgutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from atwu._names import did_you_mean
from atwu.evaluation import metrics as folder
from atwu.evaluation.columns import FORGET_OR_RETAIN, RWKU, SPECIAL_SETS, TASKS, Column
from atwu.evaluation.metric import Metric
from atwu.evaluation.metric_settings import SHARED_SETTINGS, MetricSetting

if TYPE_CHECKING:
    from atwu.evaluation.evaluate_config import EvaluateConfig

logger = logging.getLogger(__name__)

METRIC_ENTRY_POINTS = "atwu.metrics"
"""Entry points of this group name a `Metric`, or a function that registers some."""
METRIC_ORDER = (
    "memorization",
    "scores",
    "rouge",
    "key_tokens",
    "judge",
    "truth_ratio",
    "membership",
    "gradient_norm",
    "open_ended",
    "general_text",
    "families",
    "sampling",
    "rwku",
    "tasks",
    "relearning",
    "quantization",
)
"""Order in tables; a file that is not named comes after these."""

_METRICS: dict[str, type[Metric]] = {}
_M = TypeVar("_M", bound=type[Metric])


def all_metrics() -> Mapping[str, type[Metric]]:
    """Every metric by name, in the order of tables."""
    if not _METRICS:
        names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
        modules = [importlib.import_module(f"{folder.__name__}.{name}") for name in sorted(names)]
        shipped = [
            found
            for module in modules
            for found in vars(module).values()
            if _is_metric(found) and found.name and found.__module__ == module.__name__
        ]
        for metric in sorted(shipped, key=lambda each: METRIC_ORDER.index(each.name) if each.name in METRIC_ORDER else len(METRIC_ORDER)):
            _add(metric)
        _load_entry_points()
    return _METRICS


def register_metric(metric: _M) -> _M:
    """Add a metric to `evaluate`, `compare` and `report`. Can be used as a decorator.

    Raises:
        ValueError: a name is taken or unusable; nothing was added.
    """
    all_metrics()
    _add(metric)
    return metric


def _add(metric: type[Metric]) -> None:
    """Check everything, then add."""
    if not metric.name.isidentifier() or metric.name == "all":
        raise ValueError(f"names of metrics are made of letters, digits and underscores, got {metric.name!r}.")
    if metric.name in _METRICS:
        raise ValueError(f"there are metrics {metric.name!r} already; choose another name.")
    if not getattr(metric, "about", ""):
        raise ValueError(f"the metrics {metric.name!r} do not say what they are about.")
    settings = {setting.name for setting in SHARED_SETTINGS}
    columns: set[str] = set()
    for other in _METRICS.values():
        settings |= {setting.name for setting in other.settings}
        columns |= {column.name for column in other.columns}
    for kind, taken, new in (
        ("setting", settings, [setting.name for setting in metric.settings]),
        ("column", columns, [column.name for column in metric.columns]),
    ):
        for name in new:
            if name in taken or new.count(name) > 1:
                raise ValueError(f"there is a {kind} {name!r} already; the metrics {metric.name!r} need another name.")
    for column in metric.columns:
        if ":" not in column.where.removesuffix(":"):
            raise ValueError(f"the formula of {column.name!r} must be a function or 'module:function'.")
    for setting in metric.settings:
        setting.checked(setting.default)
    _METRICS[metric.name] = metric


def _is_metric(found: Any) -> TypeGuard[type[Metric]]:
    return isinstance(found, type) and issubclass(found, Metric)


def _load_entry_points() -> None:
    """Let installed packages register; one that fails is named in a warning and left out."""
    for point in importlib.metadata.entry_points(group=METRIC_ENTRY_POINTS):
        try:
            found = point.load()
            if not _is_metric(found):
                found()
            elif _METRICS.get(found.name) is not found:  # its module may have registered it
                _add(found)
        except Exception as error:
            logger.warning("entry point %s = %s failed and was left out: %s", point.name, point.value, error)


def all_settings() -> tuple[MetricSetting, ...]:
    """Every setting of an evaluation: those of all metrics, then those of each."""
    return (
        *SHARED_SETTINGS,
        *(replace(setting, metric=name) for name, metric in all_metrics().items() for setting in metric.settings),
    )


def selected_metrics(
    names: Sequence[str] | str | None,
    *,
    sets: Collection[str],
    weights: bool,
    plain: bool = True,
    references: bool = False,
) -> list[str]:
    """The metrics to run, in the order of tables.

    Args:
        names: names of metrics, "all" for all whose sets are given, or None for the default ones.
        sets: names of the sets that are given.
        weights: whether the model's weights are at hand.
        plain: whether they are plain numbers, not rounded to 4 or 8 bits.
        references: leave out what is not asked of models that are only compared with.

    Raises:
        ValueError: an unknown name, or metrics whose sets or weights are not given.
    """
    there = all_metrics()
    have = set(sets) | ({FORGET_OR_RETAIN} if set(sets) - set(SPECIAL_SETS) else set())

    def lacking(metric: type[Metric]) -> str | None:
        if missing := [need for need in metric.needs if need not in have]:
            return f"{' and '.join(missing)} rows, which are not given"
        if metric.needs_weights and not weights:
            return "the model's weights; an endpoint only generates"
        if metric.needs_plain_weights and not plain:
            return "plain weights; those of this model are rounded to few bits"
        return None

    if names is None or names == "all":
        fitting = [name for name, metric in there.items() if lacking(metric) is None]
        wanted = [name for name in fitting if names == "all" or there[name].default]
    else:
        wanted = [names] if isinstance(names, str) else list(names)
        for name in wanted:
            if what := lacking(find_metric(name)):
                raise ValueError(f"the metrics {name!r} need {what}.")
    return [name for name, metric in there.items() if name in wanted and (metric.runs_on_references or not references)]


def check_inputs_used(names: Collection[str], *, sets: Collection[str], weights: bool) -> None:
    """Refuse probes of RWKU, or tasks, that none of the chosen metrics measures.

    Raises:
        ValueError: naming them, and what they lack or how they are measured.
    """
    for given in (RWKU, TASKS):
        if given in sets and given not in names:
            selected_metrics(given, sets=sets, weights=weights)
            raise ValueError(
                f"{given} is given, and the metrics {', '.join(names) or 'chosen'} do not measure it; choose {given} too, or "
                "leave it out."
            )


def check_installed(names: Iterable[str], config: EvaluateConfig) -> None:
    """Refuse metrics that need a package which is not there, before anything is spent.

    Raises:
        ImportError: names how to install it.
    """
    for name in names:
        find_metric(name).check(config)


def find_metric(name: str) -> type[Metric]:
    """A metric by name.

    Raises:
        ValueError: there is none; names what there is.
    """
    there = all_metrics()
    if name not in there:
        hint = did_you_mean(name, there)
        raise ValueError(f"unknown metrics {name!r}; choose from all, {', '.join(there)}.{hint}")
    return there[name]


def find_column(name: str, split: str | None = None) -> tuple[type[Metric], Column, str] | None:
    """The column that a number of a result belongs to.

    Args:
        split: set that it is on, or `overall`; None for any but tasks, which may be called anything.

    Returns:
        Its metric, the column, and what its field is (empty without one); None for a number that no metric here records.
    """
    found = [
        (metric, column, field)
        for metric in all_metrics().values()
        for column in metric.columns
        if (split is None and TASKS not in column.sets) or (split is not None and column.on(split))
        if (field := column.field(name)) is not None
    ]
    return min(found, key=lambda each: bool(each[2]), default=None)  # a name of its own before one with a field


def short_name(name: str, split: str | None = None) -> str:
    """Short name of a number, for the head of a column."""
    found = find_column(name, split)
    if found is None:
        return name.replace("_", " ") if name.islower() else name
    _, column, field = found
    before, brace, rest = column.title.partition("{")
    return f"{before}{field.replace('_', ' ')}{rest.partition('}')[2]}" if brace else column.title


def metric_definition(name: str, split: str | None = None) -> str | None:
    """What a number measures, in one sentence without a full stop; None where no metric here records it."""
    found = find_column(name, split)
    return None if found is None else found[1].meaning


def where_computed(name: str, split: str | None = None) -> str | None:
    """File and function that compute a number: `atwu/evaluation/metrics/memorization.py:extraction_strength`."""
    found = find_column(name, split)
    return None if found is None else found[1].where


def listing() -> str:
    """Every metric with what it needs and costs, and the file and function of every number, for people to read."""
    lines = []
    for name, metric in all_metrics().items():
        needs = f" (needs {', '.join(metric.needs)})" if metric.needs else ""
        lines.append(f"{name:<15} {metric.about}{needs}" + (f"; {metric.cost}" if metric.cost else ""))
        shown = [column for column in metric.columns if column.shown]
        width = max((len(column.name) for column in shown), default=0)
        lines += [f"    {column.name:<{width}}  {column.where}" for column in shown]
    return "\n".join(lines)
