"""Does a later request bring back what an earlier one removed? Its rows are measured again, beside how well known they were.

What one request may cost is limited, and what several cost together adds up: the answers that the first model gave to general
questions are measured again, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atwu.benchmarks.subsample import evenly_spaced
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET
from atwu.evaluation.result import EvalResult
from atwu.request.measurement import MAX_ROWS, Reading, measure_model, other_prompts
from atwu.request.metric_intervals import metric_interval, metric_value
from atwu.request.verdict import DECISIVE_METRICS, GENERAL, MIN_CHANGE, OTHER_PROMPTS, SET_NAMES, holdout_limit

CAME_BACK, STILL_KNOWN, STILL_GONE = "came back", "not forgotten, as before", "still forgotten"


@dataclass(frozen=True, slots=True)
class BaselineScore:
    """How well the rows of a request were known, by one measure."""

    set: str
    """The rows as they are, or reworded."""
    metric: str
    before: float
    after: float
    """By the model that the request left."""
    limit: float
    """What its starting model knew of rows that no model saw."""


@dataclass(frozen=True, slots=True)
class CurrentScore:
    """The same by a later model."""

    baseline: BaselineScore
    value: float
    low: float | None
    high: float | None
    """95 % interval of `value`."""

    @property
    def known_again(self) -> bool:
        """Whether it is known again: above the limit, and more than it was."""
        return self.value > self.baseline.limit and self.value - self.baseline.after >= MIN_CHANGE

    @property
    def recovered_share(self) -> float:
        """How much of what the request removed is there again, 0 to 1."""
        return (self.value - self.baseline.after) / max(self.baseline.before - self.baseline.after, MIN_CHANGE)


@dataclass(frozen=True, slots=True)
class RegressionCheck:
    """An earlier request, measured again."""

    number: int
    outcome: str
    """One of the constants above."""
    scores: tuple[CurrentScore, ...]

    @property
    def came_back(self) -> bool:
        """Whether its rows are known again."""
        return self.outcome == CAME_BACK

    @property
    def summary(self) -> str:
        """The word, and how much came back by the measure by which most did."""
        shares = [line.recovered_share for line in self.scores if line.known_again]
        return f"{self.outcome}, up to {100 * max(shares):.0f} % of what it was" if shares else self.outcome

    def text(self) -> str:
        """For a terminal of 80 columns."""
        out = [f"request {self.number}: {self.summary}"]
        for line in self.scores:
            name = f"  {SET_NAMES[line.baseline.set]}: {DECISIVE_METRICS[line.baseline.metric]}"
            mark = "  <- back" if line.known_again else ""
            numbers = (line.baseline.before, line.baseline.after, line.value, line.baseline.limit)
            out.append(f"{name:<42}" + "".join(f"{number:>7.3f}" for number in numbers) + mark)
        return "\n".join(out)


@dataclass(frozen=True, slots=True)
class UtilityDrift:
    """How probable the first model's own answers to general questions are."""

    original: float
    """To that model."""
    current: float

    def text(self) -> str:
        """Under the same head as `RegressionCheck.text`."""
        name = "general questions: first model's answers p"
        return f"{name:<42}{self.original:>7.3f}{'':7}{self.current:>7.3f}"


def utility_drift(before: EvalResult, after: EvalResult) -> UtilityDrift | None:
    """Of a first request, by what was measured for its verdict; None where its model had nothing to say."""
    first, now = (metric_value(result, GENERAL, "probability") for result in (before, after))
    return None if first is None or now is None else UtilityDrift(first, now)


HEAD = f"{'':<42}" + "".join(f"{name:>7}" for name in ("before", "after", "now", "limit"))
"""Above the lines of `RegressionCheck.text`."""


def baseline_scores(before: EvalResult, after: EvalResult | None) -> tuple[BaselineScore, ...]:
    """What a later request is compared with.

    Args:
        before: the starting model of a request.
        after: the model that it left; None where there was nothing to forget.
    """
    found = []
    for split in (FORGET, OTHER_PROMPTS):
        for name in DECISIVE_METRICS:
            first, limit = metric_value(before, split, name), holdout_limit(before, name)
            last = first if after is None else metric_value(after, split, name)
            if first is not None and last is not None and limit is not None:
                found.append(BaselineScore(split, name, first, last, limit))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class EarlierRequest:
    """An earlier request as it is measured again: as it was then."""

    number: int
    rows: Sequence[Example]
    baseline: tuple[BaselineScore, ...]
    """How well they were known."""
    reading: Reading


def recheck_requests(
    model: Any,
    tokenizer: Any,
    earlier: Sequence[EarlierRequest],
    general: Sequence[Example],
    reading: Reading,
) -> tuple[tuple[RegressionCheck, ...], float | None]:
    """Measure the rows of earlier requests, and how probable the first model's general answers are.

    Args:
        model: causal language model, on its device.
        tokenizer: its fast tokenizer.
        earlier: the requests.
        general: what the first model answered to general questions; may be none.
        reading: how these are read.
    """

    results = {}
    for how in dict.fromkeys(each.reading for each in earlier):
        sets: dict[str, Sequence[Example]] = {}
        for request in (each for each in earlier if each.reading == how):
            sets[f"{request.number} {FORGET}"] = evenly_spaced(request.rows, MAX_ROWS)
            sets[f"{request.number} {OTHER_PROMPTS}"] = evenly_spaced(other_prompts(request.rows), MAX_ROWS)
        results[how] = measure_model(model, tokenizer, sets, how, name="now", metrics=("key_tokens",))
    found = []
    for request in earlier:
        lines, result = [], results[request.reading]
        for each in request.baseline:
            split = f"{request.number} {each.set}"
            value = result.sets[split][each.metric].value
            if value is not None:
                lines.append(CurrentScore(each, value, *(metric_interval(result, split, each.metric) or (None, None))))
        found.append(RegressionCheck(request.number, recheck_outcome(lines), tuple(lines)))
    if not general:
        return tuple(found), None
    kept = measure_model(model, tokenizer, {GENERAL: general}, reading, name="now", metrics=("memorization",))
    return tuple(found), metric_value(kept, GENERAL, "probability")


def recheck_outcome(lines: Sequence[CurrentScore]) -> str:
    """What came of an earlier request; above the limit by less than a change counts as below."""
    if any(line.known_again for line in lines):
        return CAME_BACK
    return STILL_KNOWN if any(min(line.value, line.baseline.after) > line.baseline.limit for line in lines) else STILL_GONE
