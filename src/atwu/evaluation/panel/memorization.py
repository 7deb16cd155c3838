"""What one teacher-forced pass tells: extraction strength, exact memorization, probability."""

from __future__ import annotations

from atwu.evaluation.extraction import exact_memorization, extraction_strength
from atwu.evaluation.likelihood import answer_probability
from atwu.evaluation.panel.group import Group
from atwu.evaluation.teacher_forced import TokenRow


class Memorization(Group):
    """ES, ES with its floor, EM and the probability of the answer, on every set."""

    def read(self) -> None:
        """Read every set."""
        for split in self.session.answered:
            self.session.tokens(split)

    def record(self) -> None:
        """Record them."""
        for split in self.session.answered:
            rows = self.session.tokens(split)
            record = self.session.record
            record(split, "extraction_strength", [strength(row, floor=False) for row in rows])
            record(split, "extraction_strength_floored", [strength(row, floor=True) for row in rows])
            record(split, "exact_memorization", [memorized(row) for row in rows])
            record(split, "probability", [probability(row) for row in rows])


def strength(row: TokenRow, *, floor: bool = False) -> float | None:
    """Extraction strength of a row; None when no token of its answer is left."""
    content = row.content
    return extraction_strength(row.predictions[content], row.targets[content], floor=floor) if content.any() else None


def memorized(row: TokenRow) -> float | None:
    """Exact memorization of a row."""
    return exact_memorization(row.predictions[row.content], row.targets[row.content])


def probability(row: TokenRow) -> float | None:
    """Probability of a row's answer, end token included."""
    return answer_probability(row.logps) if row.logps.size else None
