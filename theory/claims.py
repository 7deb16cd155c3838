"""Claims of the theory and whether the measurements agree with them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim with its measured result.

    Attributes:
        statement: the claim.
        expected: whether it holds according to the theory.
        observed: whether it held in the measurement.
        detail: the measured values.
    """

    statement: str
    expected: bool
    observed: bool
    detail: str

    @property
    def agrees(self) -> bool:
        """Whether the measurement agrees with the theory."""
        return self.expected == self.observed

    @property
    def verdict(self) -> str:
        """The result in one line."""
        if self.agrees:
            word = "holds" if self.observed else "fails, as expected"
        else:
            word = "HOLDS, UNEXPECTEDLY" if self.observed else "FAILS, UNEXPECTEDLY"
        return f"{word}: {self.statement} ({self.detail})"
