"""Thresholds for the evidence of a request: read from YAML before training, and compared with measurements.

They do not decide the verdict, whose limits are in `verdict_metrics.py`.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from atwu._file_reading import file_text, parse_yaml
from atwu._names import did_you_mean
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, HOLDOUT, OVERALL, RETAIN
from atwu.evaluation.intervals import combine, subtract
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.evaluation.registry import EvaluateConfig, all_metrics, find_column, value_range
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.evaluation.row_statistics import RowMetrics
from atwu.request.verdict_metrics import (
    DECISIVE_METRICS,
    GENERAL,
    HOLDOUT_SET,
    OTHER_PROMPTS,
    TEXTS,
    holdout_limit,
    metric_interval,
    row_resampler,
)

Bound = Literal["at most", "at least", "falls at most", "rises at most"]
RELATIVE = ("falls at most", "rises at most")

SETS = (FORGET, OTHER_PROMPTS, HOLDOUT, RETAIN, GENERAL, NEIGHBOURS, TEXTS, OVERALL)
"""Sets of a threshold."""
SHIPPED = "atwu default thresholds"
"""Name of the shipped thresholds."""
OF_THE_RUN = ("system", "max_length")
"""Settings that follow from the run."""
_KEYS = ("about", "thresholds", "attacks", "settings")
_BOUND = re.compile(
    r"(?P<bound>at most|at least|falls at most|rises at most) (?P<limit>holdout|[-+\d.eE]+)(?P<share> ?%)?"
)
_ALLOWED = "at most X, at least X, falls at most X, rises at most X (X % for a share), or at most holdout"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold."""

    split: str
    """Its set."""
    metric: str
    bound: Bound
    limit: float | None
    """None: the limit from holdout rows (`holdout_limit`)."""
    share: bool = False
    """The limit is a percentage of the original model's value."""

    @property
    def name(self) -> str:
        """Its name in the file."""
        return f"{self.split}.{self.metric}"

    @property
    def relative(self) -> bool:
        """Whether it limits the change since the original model."""
        return self.bound in RELATIVE

    def __str__(self) -> str:
        return f"{self.bound} {'holdout' if self.limit is None else f'{self.limit:g}'}{' %' if self.share else ''}"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A file of thresholds."""

    name: str
    """Name of the file without its folder."""
    text: str
    thresholds: tuple[Threshold, ...]
    attacks: tuple[str, ...]
    """Attacks that are measured and reported without a threshold."""
    config: EvaluateConfig

    @property
    def sha256(self) -> str:
        """Sha256 of the file, hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ThresholdResult:
    """A threshold with the measured value."""

    name: str
    threshold: str
    """Text of the limit, as in the file."""
    limit: float | None
    """Limit as a number; None if unknown."""
    value: float | None
    """Measured value, or how much it fell or rose; None if it was not measured."""
    low: float | None
    high: float | None
    """95 % interval of `value`."""
    rows: int
    """Number of rows."""
    before: float | None
    """Value of the original model, if measured."""
    after: float | None
    passed: bool | None
    """Whether the value meets the limit; None if it was not measured."""
    conclusive: bool
    """Whether the 95 % interval excludes the limit."""
    missing_reason: str = ""
    """Why it was not measured."""


def set_of(name: str) -> str:
    """Return the set of a request that a thresholds file calls by a name."""
    return HOLDOUT_SET if name == HOLDOUT else name


def shipped_text() -> str:
    """Return the shipped thresholds file."""
    return resources.files(__package__).joinpath("thresholds.yaml").read_text(encoding="utf-8")


def read_thresholds(path: str | Path | None) -> Thresholds:
    """Read a thresholds file, or the shipped one.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is invalid; names the place, the value and what is allowed.
    """
    if path is None:
        return parse_thresholds(shipped_text(), name=SHIPPED)
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"thresholds {path} not found; atwu evidence --print-thresholds prints an example.")
    return parse_thresholds(file_text(file), name=file.name)


def parse_thresholds(text: str, *, name: str) -> Thresholds:
    """Parse the text of a thresholds file.

    Args:
        text: the YAML.
        name: name of the file, also in errors.

    Raises:
        ValueError: the file is invalid.
    """
    found = parse_yaml(text, what=name)
    if not isinstance(found, dict) or not isinstance(found.get("thresholds"), dict) or not found["thresholds"]:
        raise ValueError(
            f"{name}: expected 'thresholds:' followed by lines such as 'forget.key_token_recall: at most 0.1'."
        )
    for key in found:
        if key not in _KEYS:
            raise ValueError(f"{name}: unknown key {key!r}; there are {', '.join(_KEYS)}.")
    settings = found.get("settings") or {}
    if not isinstance(settings, dict):
        raise ValueError(f"{name}: settings must be NAME: VALUE lines, got {settings!r}.")
    if own := [each for each in OF_THE_RUN if each in settings]:
        raise ValueError(
            f"{name}: settings: {' and '.join(own)} cannot be set, because they are those of the run; remove them."
        )
    try:
        config = EvaluateConfig(**settings)
    except ValueError as error:
        raise ValueError(f"{name}: settings: {error}") from None
    limits = tuple(_threshold(str(key), value, config, where=name) for key, value in found["thresholds"].items())
    return Thresholds(name, text, limits, _attacks(found.get("attacks") or [], where=name), config)


def metrics_on(split: str, config: EvaluateConfig) -> tuple[str, ...]:
    """Return the names of the metrics that can be measured on a set of a request."""
    named = {"leak_best_of_{n}": f"leak_best_of_{config.samples}"}
    return tuple(
        named.get(column.name, column.name)
        for metric in all_metrics().values()
        if set(metric.needs) <= {FORGET, RETAIN, FORGET_OR_RETAIN}
        and (metric.needs_reference or ("original",))[0] == "original"
        for column in metric.columns
        if column.on(set_of(split)) and column.shown and ("{" not in column.name or column.name in named)
    )


def metric_of(threshold: Threshold) -> str:
    """Return the name of the metric in the registry that computes a threshold's value."""
    found = find_column(threshold.metric, threshold.split)
    assert found is not None, "checked when read"
    return found[0].name


def check(threshold: Threshold, before: EvalResult, after: EvalResult) -> ThresholdResult:
    """Compare one threshold with measurements on the same rows."""
    first, last = _value(before, threshold), _value(after, threshold)
    limit = holdout_limit(before, threshold.metric) if threshold.limit is None else threshold.limit
    value, missing, low, high = last, "", None, None
    if limit is None:
        missing = "no holdout row could be measured"
    elif last is None or last.value is None:
        missing = "no value was measured"
    elif threshold.relative:
        value = _change(threshold, before, after)
        if value is None:
            missing = "the original model was not measured"
        elif value.value is None:
            missing = "it was 0 before, so that a percentage is undefined"
    known = None if missing or value is None else value.value
    if known is not None and value is not None:
        low, high = value.low, value.high
        if value is last:
            low, high = metric_interval(after, set_of(threshold.split), threshold.metric) or (low, high)
    passed = None if known is None or limit is None else _keeps(threshold.bound, known, limit)
    ends = () if low is None or high is None else (low, high)
    return ThresholdResult(
        name=threshold.name,
        threshold=str(threshold),
        limit=limit,
        value=known,
        low=low,
        high=high,
        rows=0 if last is None else last.n,
        before=None if first is None else first.value,
        after=None if last is None else last.value,
        passed=passed,
        conclusive=bool(ends)
        and limit is not None
        and all(_keeps(threshold.bound, end, limit) == passed for end in ends),
        missing_reason=missing,
    )


def _keeps(bound: Bound, value: float, limit: float) -> bool:
    return value >= limit if bound == "at least" else value <= limit


def _value(result: EvalResult, threshold: Threshold) -> MetricValue | None:
    where = result.overall if threshold.split == OVERALL else result.sets.get(set_of(threshold.split), {})
    return where.get(threshold.metric)


def _change(threshold: Threshold, before: EvalResult, after: EvalResult) -> MetricValue | None:
    """Return how much a metric fell or rose, with a paired interval; None without the original model on the same rows."""
    split, metric = set_of(threshold.split), threshold.metric
    if split not in before.rows or before.rows[split].ids != after.rows[split].ids:
        return None
    if not all(RowMetrics(side.rows).has(split, metric) for side in (before, after)):
        return None
    drawn = row_resampler(split, after.rows[split])
    first, last = (drawn.mean(side.rows[split].metrics[metric]) for side in (before, after))
    if threshold.share:
        sign = 1.0 if threshold.bound == "falls at most" else -1.0
        lost = combine(lambda one, other: sign * (one - other) * (100.0 / one), first, last)
    elif threshold.bound == "falls at most":
        lost = subtract(first, last, value_range(metric, split))
    else:
        lost = subtract(last, first, value_range(metric, split))
    low, high = lost.interval() or (None, None)
    measured = after.sets[split][metric]
    value = lost.value if math.isfinite(lost.value) else None
    return MetricValue(value, measured.n, "down", low=low, high=high, clusters=measured.clusters)


def _threshold(name: str, value: Any, config: EvaluateConfig, *, where: str) -> Threshold:
    split, _, metric = name.partition(".")
    if split not in SETS:
        raise ValueError(f"{where}: {name!r} must begin with one of {', '.join(f'{each}.' for each in SETS)}.")
    allowed = metrics_on(split, config)
    if metric not in allowed:
        hint = did_you_mean(metric, allowed, shown=lambda close: f"{split}.{close}")
        raise ValueError(f"{where}: no metric {metric!r} is measured on {split}.{hint} Allowed: {', '.join(allowed)}.")
    found = _BOUND.fullmatch(" ".join(str(value).split()))
    wrong = ValueError(f"{where}: {name} must be {_ALLOWED}; got {value!r}.")
    if found is None:
        raise wrong
    bound: Any = found["bound"]
    relative = bound in RELATIVE
    if relative and split == OVERALL:
        raise ValueError(f"{where}: {name} cannot be {bound!r}; metrics of overall take at most X or at least X.")
    if found["limit"] == "holdout":
        if bound != "at most" or found["share"] or metric not in DECISIVE_METRICS:
            raise ValueError(
                f"{where}: 'at most holdout' is allowed for {', '.join(DECISIVE_METRICS)}; got {name}: {value}."
            )
        return Threshold(split, metric, bound, None)
    try:
        limit = float(found["limit"])
    except ValueError:
        raise wrong from None
    if not math.isfinite(limit) or (found["share"] and not relative):
        raise wrong
    return Threshold(split, metric, bound, limit, share=bool(found["share"]))


def _attacks(names: Any, *, where: str) -> tuple[str, ...]:
    known = [
        name
        for name, metric in all_metrics().items()
        if metric.attack and set(metric.needs) <= {FORGET, RETAIN, FORGET_OR_RETAIN}
    ]
    if not isinstance(names, list):
        raise ValueError(f"{where}: attacks must be a list such as [{', '.join(known[:2])}], got {names!r}.")
    for name in names:
        if name not in known:
            raise ValueError(f"{where}: {name!r} is not one of the attacks {', '.join(known)}.")
    return tuple(names)
