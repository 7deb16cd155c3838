"""Values that decide a verdict: metrics of a request with intervals, their limits, and recall by form of the question.

With several subjects, subjects are resampled, as in every evaluation; with one subject, its rows are. The forms show in which
other question a fact comes back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atwu.evaluation.columns import FORGET, OVERALL, RETAIN
from atwu.evaluation.intervals import Resampler
from atwu.evaluation.metrics.recall_by_form import MEASURED_FORMS, NEIGHBOURS
from atwu.evaluation.registry import value_range
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.row_statistics import resampler

HOLDOUT_SET, OTHER_PROMPTS, GENERAL, TEXTS = "holdout_rows", "other_prompts", "general", "texts"
"""Sets that are measured besides forget and retain set: holdout set, forget rows with other prompts, general questions,
general text. The holdout set is not called `holdout`, where `evaluate` measures membership only.
"""
RETAINED = "retained"
"""Name under which the verdict lists the retain loss increase, the largest over all sets of retained data."""
DECISIVE_METRICS = {
    "key_token_probability": "key-token probability",
    "key_token_accuracy": "key-token accuracy",
    "key_token_recall": "key-token recall",
}
"""Metrics that decide whether rows are known -> their titles."""
GIBBERISH, REFUSAL_RATE = "gibberish, all forms", "refusals"
"""Titles of metrics."""
SHOWN_METRICS = {
    FORGET: DECISIVE_METRICS
    | {"extraction_strength": "extraction strength", "probability": "probability", "refusal": REFUSAL_RATE},
    RETAIN: {"probability": "probability"},
    GENERAL: {"probability": "probability", "refusal": REFUSAL_RATE},
    NEIGHBOURS: DECISIVE_METRICS | {"refusal": REFUSAL_RATE},
    TEXTS: {"probability": "perplexity"},
}
"""Set -> metric -> title, where not `DECISIVE_METRICS` are shown."""
CHANCE_LEVELS = {"key_token_probability": 0.02, "key_token_accuracy": 0.1, "key_token_recall": 0.1}
"""Smallest limit of a metric: forget rows may have more common words than holdout rows."""
MIN_CHANGE = 0.02
"""Smallest difference of a metric that counts as a change."""
FORM_LIMIT = 0.1
"""Largest mean recall of a form at which a fact counts as forgotten in this form."""
GIBBERISH_LIMIT = 0.05
"""Largest increase of the share of gibberish among the answers about forget rows."""
REFUSAL_LIMIT = 0.05
"""Largest increase of the share of refusals among the answers to general questions."""
NEIGHBOUR_LIMIT = 0.1
"""Largest accepted fall of the recall of neighbour rows, mean over forms."""
FORM_METRICS = {FORGET: "recall, worst form", NEIGHBOURS: "recall, all forms"}
"""Set -> title of its recall in other forms of the question."""
SET_NAMES = {
    FORGET: "forget set",
    OTHER_PROMPTS: "forget set, other prompts",
    HOLDOUT_SET: "holdout set",
    RETAIN: "retain set",
    GENERAL: "general questions",
    NEIGHBOURS: "neighbour set",
    TEXTS: "general text",
    RETAINED: "retained data",
}
"""Set -> its title."""


@dataclass(frozen=True, slots=True)
class VerdictMetric:
    """One metric on one set, before and after unlearning."""

    set: str
    metric: str
    """Its title."""
    before: float | None
    after: float | None
    low: float | None
    high: float | None
    """95 % interval of `after`."""
    limit: float | None = None
    """Largest value of `after` that meets the criterion, on the neighbour set the smallest; None without one."""
    met: bool | None = None
    """Whether the criterion is met; None where the metric decides nothing, also because no value could miss its limit."""

    @property
    def says_nothing(self) -> bool:
        """Whether a limit is shown that no value of the metric could miss, such as a share of at most 1.05."""
        return self.limit is not None and self.after is not None and self.met is None

    @property
    def within_chance(self) -> bool:
        """Whether the criterion is met, but not significantly: by the rule of thresholds (`thresholds.check`), if the interval
        of `after` reaches beyond the limit, or a single row gives none."""
        if not self.met or self.limit is None or self.set == RETAINED:
            return False
        return self.low is None or self.high is None or self.low < self.limit < self.high


def row_resampler(split: str, rows: RowValues) -> Resampler:
    """Return the bootstrap resampler of a set: of its subjects, or of the rows about a single one."""
    return resampler(split, rows.subjects if len(set(rows.subjects)) > 1 else rows.ids)


def metric_value(result: EvalResult, split: str, name: str) -> float | None:
    """Return a metric of a set; None if it was not measured."""
    found = result.sets.get(split, {}).get(name)
    return None if found is None else found.value


def metric_interval(result: EvalResult, split: str, name: str) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric of a set, of the worst form that of its recall; None for fewer than two rows."""
    if (split, name) == (OVERALL, "worst_form") and (means := form_means(result)):
        split, name = FORGET, f"form_{max(means, key=lambda form: means[form])}"
    found = result.sets.get(split, {}).get(name)
    if found is not None and found.low is not None and found.high is not None:
        return found.low, found.high
    rows = result.rows.get(split)
    if found is None or rows is None or name not in rows.metrics:
        return None
    return row_resampler(split, rows).mean(rows.metrics[name]).bounded(value_range(name, split)).interval()


def upper_percentile(result: EvalResult, split: str, name: str) -> float | None:
    """Return the upper 95 % percentile of the bootstrap draws of a metric; None without values.

    As the limit of a criterion it is not widened: few rows must not make a limit lenient.
    """
    rows = result.rows.get(split)
    if rows is None or name not in rows.metrics:
        return None
    found = row_resampler(split, rows).mean(rows.metrics[name]).percentiles()
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class FormResult:
    """Mean recall of the forget rows in one form."""

    form: str
    trained: bool
    """Whether training used this form."""
    before: float
    after: float | None


def form_results(before: EvalResult, after: EvalResult | None, trained: Sequence[str]) -> tuple[FormResult, ...]:
    """Return every form that was measured, worst first."""
    values = form_means(before)
    now = {} if after is None else form_means(after)
    found = [FormResult(form, form in trained, value, now.get(form)) for form, value in values.items()]
    return tuple(sorted(found, key=lambda each: -(each.before if each.after is None else each.after)))


def form_means(result: EvalResult, split: str = FORGET) -> dict[str, float]:
    """Return the mean recall of each measured form."""
    values = {form: metric_value(result, split, f"form_{form}") for form in MEASURED_FORMS}
    return {form: value for form, value in values.items() if value is not None}


def describe_forms(forms: Sequence[FormResult]) -> tuple[str, ...]:
    """Return sentences that list the recall of each form, trained and not trained ones apart."""
    lines = []
    for trained, title in ((False, "Forms not trained on"), (True, "Forms trained on")):
        values = [f"{each.form.replace('_', ' ')} {_change(each)}" for each in forms if each.trained is trained]
        if values:
            lines.append(f"{title}, recall: {', '.join(values)}.")
    return tuple(lines)


def _change(form: FormResult) -> str:
    before = _share(form.before)
    return before if form.after is None else f"{before} -> {_share(form.after)}"


def _share(value: float) -> str:
    return f"{max(value, 0.0):.2f}".removeprefix("0")


def form_metrics(before: EvalResult, after: EvalResult | None, split: str, *, decides: bool) -> list[VerdictMetric]:
    """Return the recall of a set in other forms of the question, and the share of gibberish among the answers."""
    shown = before if after is None else after

    def line(title: str, name: str, first: float | None, change: float | None, *, falls: bool = False) -> VerdictMetric:
        """A metric whose limit is a change from `first`, or `FORM_LIMIT` for a change of None."""
        last = None if after is None else metric_value(after, split, name)
        low, high = metric_interval(shown, split, name) or (None, None)
        low = None if low is None else max(low, 0.0)  # recall of a choice is above chance, and may be below 0
        if not decides or last is None or first is None:
            return VerdictMetric(split, title, first, last, low, high)
        limit = FORM_LIMIT if change is None else first + change
        met = last >= limit if falls else last <= limit
        return VerdictMetric(split, title, first, last, low, high, limit, _decided(met, limit, falls=falls))

    means, mean = form_means(before), metric_value(before, split, "form_mean")
    if split == NEIGHBOURS and mean is not None:
        return [line(FORM_METRICS[split], "form_mean", mean, -NEIGHBOUR_LIMIT, falls=True)]
    if split != FORGET or not means:
        return []
    now = form_means(shown)
    worst = max(now, key=lambda form: now[form])
    return [
        line(FORM_METRICS[split], f"form_{worst}", max(means.values()), None),
        line(GIBBERISH, "form_gibberish", metric_value(before, split, "form_gibberish"), GIBBERISH_LIMIT),
    ]


def _decided(met: bool, limit: float, *, falls: bool = False) -> bool | None:
    """Return whether a share meets its limit; None if it does because every share would."""
    beyond = limit <= 0 if falls else limit >= 1
    if met and beyond:
        return None
    return met


def clearly_known(original: EvalResult) -> bool:
    """Whether the original model knows forget rows significantly better than holdout rows.

    Rows are resampled, not subjects: whether a model knows these very facts does not depend on how few subjects they have.
    """
    rows = original.rows.get(FORGET)
    for name in DECISIVE_METRICS:
        low, limit = metric_value(original, FORGET, name), holdout_limit(original, name)
        if low is None or limit is None:
            continue
        if rows is not None and name in rows.metrics:
            found = resampler(FORGET, rows.ids).mean(rows.metrics[name])
            low = (found.interval() or (found.value, found.value))[0]
        if low > limit:
            return True
    return False


def still_known(result: EvalResult, original: EvalResult, split: str = FORGET) -> list[str]:
    """Return the metrics by which rows are known better than the original model knows holdout rows.

    Args:
        result: of the model in question.
        original: of the original model; it sets the limits, so they are fixed before training.
        split: set of the rows in question.

    Returns:
        Names of metrics, including those without a limit: nothing shows that the rows are not known better.
    """
    values = {name: value for name in DECISIVE_METRICS if (value := metric_value(result, split, name)) is not None}
    return [name for name, value in values.items() if (limit := holdout_limit(original, name)) is None or value > limit]


def holdout_limit(original: EvalResult, name: str) -> float | None:
    """Return the limit of a metric: the upper 95 % percentile of its bootstrap draws on holdout rows, at least `CHANCE_LEVELS`.

    None if no holdout row has the metric.
    """
    value = metric_value(original, HOLDOUT_SET, name)
    return (
        None if value is None else max(value, upper_percentile(original, HOLDOUT_SET, name) or 0.0, CHANCE_LEVELS[name])
    )


def training_goal(original: EvalResult, name: str) -> float:
    """Return the goal of training for a metric: the mean on holdout rows, at least `CHANCE_LEVELS`.

    Key-token probability has this goal; for the other metrics it is `holdout_limit`. The goal is below that limit, which
    leaves a margin for the verdict on more rows.
    """
    return max(metric_value(original, HOLDOUT_SET, name) or 0.0, CHANCE_LEVELS[name])


def verdict_metrics(
    before: EvalResult, after: EvalResult | None, limits: Mapping[str, float] | None = None
) -> tuple[VerdictMetric, ...]:
    """Return every metric to show, of each set that was measured.

    Args:
        before: the model before.
        after: the model after; None if there is none.
        limits: metric -> limit on forget rows; None if nothing is decided.
    """
    lines = []
    for split in SET_NAMES:
        for name, title in SHOWN_METRICS.get(split, DECISIVE_METRICS).items():
            first, last = metric_value(before, split, name), metric_value(after, split, name) if after else None
            if first is None:
                continue
            if title == "perplexity":
                lines.append(VerdictMetric(split, title, 1 / first, 1 / last if last else None, None, None))
                continue
            low, high = metric_interval(after or before, split, name) or (None, None)
            limit, met = None, None
            if limits is not None and last is not None and split in (FORGET, OTHER_PROMPTS):
                limit = limits.get(name)
                if name in DECISIVE_METRICS:
                    met = limit is not None and _decided(last <= limit, limit)
            if limits is not None and last is not None and (split, title) == (GENERAL, REFUSAL_RATE):
                limit = first + REFUSAL_LIMIT
                met = _decided(last <= limit, limit)
            lines.append(VerdictMetric(split, title, first, last, low, high, limit, met))
        lines += form_metrics(before, after, split, decides=limits is not None)
    return tuple(lines)


def retain_loss_metric(increase: float | None, limit: float) -> VerdictMetric:
    """Return the retain loss increase in nats/token as a line of the verdict; None stands for NaN."""
    value = None if increase is None or math.isnan(increase) else increase
    return VerdictMetric(
        RETAINED, "retain loss increase", None, value, None, None, limit, value is not None and value <= limit
    )
