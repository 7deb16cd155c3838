"""What goes into a judge and what comes out, and the interface that every judge has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Claim:
    """One answer to be checked against its reference."""

    question: str
    reference: str
    """The true answer; the judge relies on nothing else."""
    answer: str
    """What the model said."""
    facts: tuple[str, ...] = ()
    """The words of the reference that carry its fact, where the rows say so (`forget_spans`); empty: not known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an answer states the reference's fact."""

    correct: bool | None
    """None: unscored, no readable verdict could be had. It is never counted as wrong."""
    reason: str = ""
    """Why the verdict is what it is, or why there is none."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one instruction, in the order in which the judge sees them."""

    instruction: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Preference:
    """How a judge rates two answers."""

    first: float | None
    """Rating from 1 to 10; None: unscored."""
    second: float | None
    reason: str = ""


class Judge(Protocol):
    """A judge answers in the order it was asked, and its identity names everything that can change an answer."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Plain JSON: kind, rubric versions, model, settings."""

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        """One verdict per claim; equal claims get equal verdicts and cost one call."""

    def prefer(self, pairs: Sequence[Pair]) -> list[Preference]:
        """One preference per pair."""
