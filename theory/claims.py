"""What was proved, what was measured, and whether the two agree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One line of the verdict.

    Attributes:
        statement: what is claimed.
        expected: True where the theory says it holds, False where it says it fails.
        observed: whether it held here.
        detail: the figures behind it.
    """

    statement: str
    expected: bool
    observed: bool
    detail: str

    @property
    def agrees(self) -> bool:
        """Whether the measurement came out as the theory says."""
        return self.expected == self.observed

    @property
    def verdict(self) -> str:
        """One line for people."""
        if self.agrees:
            word = "holds" if self.observed else "fails, as expected"
        else:
            word = "HOLDS, UNEXPECTEDLY" if self.observed else "FAILS, UNEXPECTEDLY"
        return f"{word}: {self.statement} ({self.detail})"
