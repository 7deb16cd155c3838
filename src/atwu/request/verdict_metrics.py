"""Metric values of a request with confidence intervals, and recall by form of the question.

With several subjects, subjects are resampled, as in every evaluation; with one subject, its rows are. The forms show in which
other question a fact comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atwu.evaluation.columns import FORGET
from atwu.evaluation.intervals import Resampler
from atwu.evaluation.metrics.recall_by_form import MEASURED_FORMS, NEIGHBOURS
from atwu.evaluation.registry import find_column
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.row_statistics import resampler


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
    """Whether the criterion is met; None where the metric decides nothing."""

    @property
    def within_chance(self) -> bool:
        """Whether the criterion is met, but the interval of `after` reaches beyond the limit."""
        if not self.met or self.low is None or self.high is None or self.limit is None:
            return False
        return self.low < self.limit < self.high


def row_resampler(split: str, rows: RowValues) -> Resampler:
    """Return the bootstrap resampler of a set."""
    return resampler(split, rows.subjects if len(set(rows.subjects)) > 1 else rows.ids)


def metric_value(result: EvalResult, split: str, name: str) -> float | None:
    """Return a metric of a set; None if it was not measured."""
    found = result.sets.get(split, {}).get(name)
    return None if found is None else found.value


def metric_interval(result: EvalResult, split: str, name: str) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric of a set; None for fewer than two rows."""
    found = result.sets.get(split, {}).get(name)
    if found is not None and found.low is not None and found.high is not None:
        return found.low, found.high
    rows = result.rows.get(split)
    if found is None or rows is None or name not in rows.metrics:
        return None
    column = find_column(name, split)
    within = (None, None) if column is None else column[1].range
    return row_resampler(split, rows).mean(rows.metrics[name]).interval(within)


def lower_bound_of_rows(result: EvalResult, split: str, name: str) -> float | None:
    """Return the lower end of the interval of a metric over these rows, whoever they are about; None without values.

    Whether a model knows these very facts does not depend on how few subjects they have.
    """
    rows = result.rows.get(split)
    if rows is None or name not in rows.metrics:
        return None
    found = resampler(split, rows.ids).mean(rows.metrics[name])
    return (found.interval() or (found.value, found.value))[0]


def upper_percentile(result: EvalResult, split: str, name: str) -> float | None:
    """Return the upper 95 % percentile of the bootstrap draws of a metric; None without values.

    As the limit of a criterion it is not widened: few rows must not make a limit lenient.
    """
    rows = result.rows.get(split)
    if rows is None or name not in rows.metrics:
        return None
    found = row_resampler(split, rows).mean(rows.metrics[name]).percentiles()
    return None if found is None else found[1]


FORM_LIMIT = 0.1
"""Largest mean recall of a form at which a fact counts as forgotten in this form."""
GIBBERISH_LIMIT = 0.05
"""Largest increase of the share of gibberish among the answers about forget rows."""
NEIGHBOUR_LIMIT = 0.1
"""Largest accepted fall of the recall of neighbour rows, mean over forms."""


FORM_METRICS = {FORGET: "recall, worst form", NEIGHBOURS: "recall, all forms"}
"""Set -> title of its recall in other forms of the question."""
GIBBERISH = "gibberish, all forms"


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
        if not decides or last is None or first is None:
            return VerdictMetric(split, title, first, last, low, high)
        limit = FORM_LIMIT if change is None else first + change
        return VerdictMetric(split, title, first, last, low, high, limit, last >= limit if falls else last <= limit)

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
