"""Limits that a request has to keep, written down before training: read from YAML, and compared with what was measured."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from atwu._file_reading import file_text, parse_yaml
from atwu._names import did_you_mean
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, OVERALL, RETAIN
from atwu.evaluation.evaluate_config import EvaluateConfig
from atwu.evaluation.intervals import combine
from atwu.evaluation.registry import all_metrics, find_column
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.evaluation.row_statistics import RowMetrics
from atwu.request.metric_intervals import metric_interval, row_resampler
from atwu.request.verdict import DECISIVE_METRICS, GENERAL, HOLDOUT_SET, OTHER_PROMPTS, TEXTS, holdout_limit

Bound = Literal["at most", "at least", "falls at most", "rises at most"]

SETS = (FORGET, OTHER_PROMPTS, HOLDOUT_SET, RETAIN, GENERAL, TEXTS, OVERALL)
"""What a threshold may be about."""
SHIPPED = "atwu's own"
"""Name of the thresholds that hold where none are given."""
OF_THE_RUN = ("system", "max_length")
"""Settings of an evaluation that are those of the run."""
_KEYS = ("about", "thresholds", "attacks", "settings")
_BOUND = re.compile(
    r"(?P<bound>at most|at least|falls at most|rises at most) (?P<limit>holdout|[-+\d.eE]+)(?P<share> ?%)?"
)
_ALLOWED = "at most X, at least X, falls at most X, rises at most X (X % for a share), or at most holdout"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One limit."""

    split: str
    """Set that it is about."""
    metric: str
    bound: Bound
    limit: float | None
    """None: what the starting model knows of rows that no model saw."""
    share: bool = False
    """The limit is a share of what the starting model had, in percent."""

    @property
    def name(self) -> str:
        """As the file has it."""
        return f"{self.split}.{self.metric}"

    def __str__(self) -> str:
        return f"{self.bound} {'holdout' if self.limit is None else f'{self.limit:g}'}{' %' if self.share else ''}"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A file of limits."""

    name: str
    """Of the file, without its folder."""
    text: str
    limits: tuple[Threshold, ...]
    attacks: tuple[str, ...]
    """Metrics that are measured and reported besides."""
    config: EvaluateConfig

    @property
    def sha256(self) -> str:
        """Of the file, hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ThresholdResult:
    """A limit beside what was measured."""

    name: str
    threshold: str
    """As the file has it."""
    limit: float | None
    """The number that it came to; None where that is not known."""
    value: float | None
    """What was measured: the number itself, or by how much it fell or rose; None where it was not measured."""
    low: float | None
    high: float | None
    """95 % interval of `value`."""
    rows: int
    """Rows it rests on."""
    before: float | None
    """The starting model's number, where it was measured."""
    after: float | None
    passed: bool | None
    """Whether the value keeps the limit; None where it was not measured."""
    conclusive: bool
    """Whether the whole interval lies on the value's side of the limit."""
    missing_reason: str = ""
    """Why it was not measured."""


@cache
def shipped_text() -> str:
    """The file that is shipped."""
    return resources.files(__package__).joinpath("thresholds.yaml").read_text(encoding="utf-8")


def read_thresholds(path: str | Path | None) -> Thresholds:
    """Read a file of thresholds, or the shipped one.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a file; names the place, what is there, what may be.
    """
    if path is None:
        return parse_thresholds(shipped_text(), name=SHIPPED)
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(
            f"thresholds {path} not found; atwu evidence --print-thresholds prints some to start from."
        )
    return parse_thresholds(file_text(file), name=file.name)


def parse_thresholds(text: str, *, name: str) -> Thresholds:
    """The same from a text; `name` is what it and errors about it are called."""
    found = parse_yaml(text, what=name)
    if not isinstance(found, dict) or not isinstance(found.get("thresholds"), dict) or not found["thresholds"]:
        raise ValueError(
            f"{name}: expected 'thresholds:' and below it lines such as 'forget.key_token_recall: at most 0.1'."
        )
    for key in found:
        if key not in _KEYS:
            raise ValueError(f"{name}: unknown key {key!r}; there are {', '.join(_KEYS)}.")
    settings = found.get("settings") or {}
    if not isinstance(settings, dict):
        raise ValueError(f"{name}: settings must be NAME: VALUE lines, got {settings!r}.")
    if own := [each for each in OF_THE_RUN if each in settings]:
        raise ValueError(
            f"{name}: settings: {' and '.join(own)} cannot be set: rows are measured as the run is trained; leave this out."
        )
    try:
        config = EvaluateConfig(**settings)
    except ValueError as error:
        raise ValueError(f"{name}: settings: {error}") from None
    limits = tuple(_threshold(str(key), value, config, where=name) for key, value in found["thresholds"].items())
    return Thresholds(name, text, limits, _attacks(found.get("attacks") or [], where=name), config)


def numbers_on(split: str, config: EvaluateConfig) -> tuple[str, ...]:
    """Names of the numbers that can be measured on a set of a request, in the order of the panel."""
    named = {"leak_best_of_{n}": f"leak_best_of_{config.samples}"}
    return tuple(
        named.get(column.name, column.name)
        for metric in all_metrics().values()
        if set(metric.needs) <= {FORGET, RETAIN, FORGET_OR_RETAIN}
        and (metric.compares or ("original",))[0] == "original"
        for column in metric.columns
        if column.on(split) and column.shown and ("{" not in column.name or column.name in named)
    )


def metric_of(threshold: Threshold) -> str:
    """Name of the metric that records a threshold's number."""
    found = find_column(threshold.metric, threshold.split)
    assert found is not None, "checked on reading"
    return found[0].name


def check(threshold: Threshold, before: EvalResult, after: EvalResult) -> ThresholdResult:
    """Compare one limit with what was measured on the same rows."""
    first, last = _value(before, threshold), _value(after, threshold)
    limit, value, missing = threshold.limit, last, ""
    if limit is None:
        limit = holdout_limit(before, threshold.metric)
        missing = "" if limit is not None else "no row that no model saw could be compared with"
    if value is None or value.value is None:
        missing = missing or "no value was measured"
    elif threshold.bound in ("falls at most", "rises at most"):
        value = _change(threshold, before, after)
        if value is None:
            missing = "the starting model was not measured on it"
        elif value.value is None:
            missing = "it was 0 before, of which nothing is a share"
    known = None if missing or value is None else value.value
    low, high = (value.low, value.high) if value is not None and known is not None else (None, None)
    if known is not None and value is last:
        low, high = metric_interval(after, threshold.split, threshold.metric) or (low, high)
    passed = None if known is None or limit is None else _keeps(threshold.bound, known, limit)
    ends = (low, high) if low is not None and high is not None else ()
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
        missing_reason="" if passed is not None else missing,
    )


def _keeps(bound: Bound, value: float, limit: float) -> bool:
    return value >= limit if bound == "at least" else value <= limit


def _value(result: EvalResult, threshold: Threshold) -> MetricValue | None:
    where = result.overall if threshold.split == OVERALL else result.sets.get(threshold.split, {})
    return where.get(threshold.metric)


def _change(threshold: Threshold, before: EvalResult, after: EvalResult) -> MetricValue | None:
    """By how much a number fell or rose, with a paired interval; None where the starting model lacks it, or had other rows."""
    split, metric = threshold.split, threshold.metric
    if split not in before.rows or before.rows[split].ids != after.rows[split].ids:
        return None
    if not all(RowMetrics(side.rows).has(split, metric) for side in (before, after)):
        return None
    drawn = row_resampler(split, after.rows[split])
    first, last = (drawn.mean(side.rows[split].metrics[metric]) for side in (before, after))
    sign = 1.0 if threshold.bound == "falls at most" else -1.0
    lost = combine(lambda one, other: sign * (one - other) * (100.0 / one if threshold.share else 1.0), first, last)
    low, high = lost.interval() or (None, None)
    measured = after.sets[split][metric]
    value = lost.value if math.isfinite(lost.value) else None
    return MetricValue(value, measured.n, "down", low=low, high=high, clusters=measured.clusters)


def _threshold(name: str, said: Any, config: EvaluateConfig, *, where: str) -> Threshold:
    split, _, metric = name.partition(".")
    if split not in SETS:
        raise ValueError(f"{where}: {name!r} must begin with one of {', '.join(f'{each}.' for each in SETS)}")
    allowed = numbers_on(split, config)
    if metric not in allowed:
        hint = did_you_mean(metric, allowed, shown=lambda close: f"{split}.{close}")
        raise ValueError(f"{where}: no number {metric!r} is measured on {split}.{hint} There are {', '.join(allowed)}.")
    found = _BOUND.fullmatch(" ".join(str(said).split()))
    wrong = ValueError(f"{where}: {name} must be {_ALLOWED}; got {said!r}.")
    if found is None:
        raise wrong
    bound: Any = found["bound"]
    relative = bound in ("falls at most", "rises at most")
    if relative and split == OVERALL:
        raise ValueError(f"{where}: {name} has no {bound!r}; numbers of overall take at most X or at least X.")
    if found["limit"] == "holdout":
        if bound != "at most" or found["share"] or metric not in DECISIVE_METRICS:
            raise ValueError(f"{where}: 'at most holdout' goes with {', '.join(DECISIVE_METRICS)}; got {name}: {said}.")
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
            raise ValueError(f"{where}: {name!r} is none of the attacks {', '.join(known)}.")
    return tuple(names)
