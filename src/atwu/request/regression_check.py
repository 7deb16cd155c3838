"""What came of an earlier request when it is asked again of a later model."""

from __future__ import annotations

from dataclasses import dataclass

from atwu.evaluation.facts.fact_table import FactCount

CAME_BACK, STILL_KNOWN, STILL_GONE = "came back", "not forgotten, as before", "still forgotten"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What answers about the forget rows of a request stated, before and after that request."""

    before: FactCount
    after: FactCount
    """Of the model that the request left."""
    forgotten: bool
    """Whether the facts were forgotten then, by the rule of verdicts."""


@dataclass(frozen=True, slots=True)
class RegressionCheck:
    """An earlier request, asked again of a later model."""

    number: int
    """Place of the request in the chain; the first is 1."""
    outcome: str
    """One of the constants above."""
    baseline: Baseline
    now: FactCount

    @property
    def came_back(self) -> bool:
        return self.outcome == CAME_BACK

    @property
    def summary(self) -> str:
        """The outcome, and how many answers state a fact."""
        before, after, now = self.baseline.before, self.baseline.after, self.now
        return (
            f"{self.outcome}: {now.answers_stating} of {now.answers} answers state a fact ({before.answers_stating} of "
            f"{before.answers} before that request, {after.answers_stating} after it)"
        )
