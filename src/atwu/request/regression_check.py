"""Measure the forget rows of earlier requests again: does a later request bring back what an earlier one removed?

Each request may raise the loss on retained data up to a limit, and several requests add up. Therefore the original model's
answers to general questions are measured again, too.
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
from atwu.request.verdict import DECISIVE_METRICS, GENERAL, MIN_CHANGE, OTHER_PROMPTS, SET_NAMES, holdout_limit
from atwu.request.verdict_metrics import metric_interval, metric_value

CAME_BACK, STILL_KNOWN, STILL_GONE = "came back", "not forgotten, as before", "still forgotten"


@dataclass(frozen=True, slots=True)
class BaselineScore:
    """One metric on the forget rows of a request, before and after that request."""

    set: str
    """Forget set, or forget set with other prompts."""
    metric: str
    before: float
    after: float
    """Value of the model that the request left."""
    limit: float
    """Limit from holdout rows (`holdout_limit`)."""


@dataclass(frozen=True, slots=True)
class CurrentScore:
    """The same metric on a later model."""

    baseline: BaselineScore
    value: float
    low: float | None
    high: float | None
    """95 % interval of `value`."""

    @property
    def known_again(self) -> bool:
        """Whether the rows are known again: above the limit, and clearly more than after the request."""
        return self.value > self.baseline.limit and self.value - self.baseline.after >= MIN_CHANGE

    @property
    def recovered_share(self) -> float:
        """Share of the removed knowledge that is back: 0 as after the request, 1 as before it."""
        return (self.value - self.baseline.after) / max(self.baseline.before - self.baseline.after, MIN_CHANGE)


@dataclass(frozen=True, slots=True)
class RegressionCheck:
    """An earlier request, measured on a later model."""

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
        """The outcome, and the largest share that came back by any metric."""
        shares = [line.recovered_share for line in self.scores if line.known_again]
        return f"{self.outcome}, up to {100 * max(shares):.0f} % of what it was" if shares else self.outcome

    def text(self) -> str:
        """Return the check as plain text, 80 columns wide."""
        out = [f"request {self.number}: {self.summary}"]
        for line in self.scores:
            name = f"  {SET_NAMES[line.baseline.set]}: {DECISIVE_METRICS[line.baseline.metric]}"
            mark = "  back" if line.known_again else ""
            numbers = (line.baseline.before, line.baseline.after, line.value, line.baseline.limit)
            out.append(f"{name:<48}" + "".join(f"{number:>6.3f}" for number in numbers) + mark)
        return "\n".join(out)


@dataclass(frozen=True, slots=True)
class UtilityDrift:
    """Probability of the original model's answers to general questions."""

    original: float
    """Under the original model of the ledger."""
    current: float
    """Under the newest model."""

    def text(self) -> str:
        """Return the values as a line below `HEAD`."""
        name = "general questions: original answers, probability"
        return f"{name:<48}{self.original:>6.3f}{'':6}{self.current:>6.3f}"


def utility_drift(before: EvalResult, after: EvalResult) -> UtilityDrift | None:
    """Return the drift after the first request, from the measurements of its verdict; None without answers."""
    first, now = (metric_value(result, GENERAL, "probability") for result in (before, after))
    return None if first is None or now is None else UtilityDrift(first, now)


HEAD = f"{'':<48}" + "".join(f"{name:>6}" for name in ("before", "after", "now", "limit"))
"""Header of the lines of `RegressionCheck.text`."""


def baseline_scores(before: EvalResult, after: EvalResult | None) -> tuple[BaselineScore, ...]:
    """Return the scores that later requests are compared with.

    Args:
        before: measurements of the request's original model.
        after: measurements of the model that it left; None if there was nothing to forget.
    """
    scores = []
    for split in (FORGET, OTHER_PROMPTS):
        for name in DECISIVE_METRICS:
            first, limit = metric_value(before, split, name), holdout_limit(before, name)
            last = first if after is None else metric_value(after, split, name)
            if first is not None and last is not None and limit is not None:
                scores.append(BaselineScore(split, name, first, last, limit))
    return tuple(scores)


@dataclass(frozen=True, slots=True)
class EarlierRequest:
    """An earlier request with what is needed to measure it again."""

    number: int
    rows: Sequence[Example]
    baseline: tuple[BaselineScore, ...]
    """Scores before and after that request."""
    reading: Reading


def recheck_requests(
    model: Any,
    tokenizer: Any,
    earlier: Sequence[EarlierRequest],
    general: Sequence[Example],
    reading: Reading,
) -> tuple[tuple[RegressionCheck, ...], float | None]:
    """Measure the forget rows of earlier requests, and the probability of the original answers to general questions.

    Args:
        model: causal language model, on its device.
        tokenizer: its fast tokenizer.
        earlier: the requests.
        general: answers of the original model to general questions; may be empty.
        reading: how these are tokenized.
    """
    results = {}
    for how in dict.fromkeys(each.reading for each in earlier):
        sets: dict[str, Sequence[Example]] = {}
        for request in (each for each in earlier if each.reading == how):
            sets[f"{request.number} {FORGET}"] = evenly_spaced(request.rows, MAX_ROWS)
            sets[f"{request.number} {OTHER_PROMPTS}"] = evenly_spaced(other_prompts(request.rows), MAX_ROWS)
        results[how] = measure_model(model, tokenizer, sets, how, name="now", metrics=("key_tokens",))
    checks = []
    for request in earlier:
        lines, result = [], results[request.reading]
        for each in request.baseline:
            split = f"{request.number} {each.set}"
            value = result.sets[split][each.metric].value
            if value is not None:
                lines.append(CurrentScore(each, value, *(metric_interval(result, split, each.metric) or (None, None))))
        checks.append(RegressionCheck(request.number, recheck_outcome(lines), tuple(lines)))
    if not general:
        return tuple(checks), None
    kept = measure_model(model, tokenizer, {GENERAL: general}, reading, name="now", metrics=("memorization",))
    return tuple(checks), metric_value(kept, GENERAL, "probability")


def recheck_outcome(lines: Sequence[CurrentScore]) -> str:
    """Return the outcome of a check; above the limit by less than `MIN_CHANGE` counts as below."""
    if any(line.known_again for line in lines):
        return CAME_BACK
    return (
        STILL_KNOWN if any(min(line.value, line.baseline.after) > line.baseline.limit for line in lines) else STILL_GONE
    )
