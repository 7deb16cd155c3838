"""Input and output of judges, and their common interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Claim:
    """An answer to check against its reference."""

    question: str
    reference: str
    """True answer; the judge uses no other knowledge."""
    answer: str
    facts: tuple[str, ...] = ()
    """Parts of the reference that carry its fact, from `forget_spans`; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an answer states the reference's fact."""

    correct: bool | None
    """None: unscored (no readable verdict); never counted as incorrect."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one instruction, in the order shown to the judge."""

    instruction: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Preference:
    first: float | None
    """Rating from 1 to 10; None: unscored."""
    second: float | None
    reason: str = ""


class Judge(Protocol):
    """Interface of judges. Results are in the order of the inputs."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that can change a verdict, as plain JSON: kind, rubric versions, model, settings."""

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Return one verdict per claim; equal claims get equal verdicts and cost one call."""

    def prefer(self, pairs: Sequence[Pair]) -> list[Preference]:
        """Return one preference per pair."""
