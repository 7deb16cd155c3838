"""Key tokens of an answer: the words that carry the fact.

They are the labelled words (`forget_spans`) if a row has labels: those of a user, or those that a request found by evidence
(`atwu.methods.weightings.contrast`). Otherwise a rule finds candidates (`atwu.data.answer_units`): values, names and rare words
that the question does not say.
"""

from __future__ import annotations

from atwu.data.answer_units import fact_candidates
from atwu.data.schema import Example, Span


def key_token_spans(row: Example) -> tuple[Span, ...]:
    """Return the character ranges of an answer's key tokens; empty for an answer without words."""
    if row.forget_spans:
        return row.forget_spans
    return fact_candidates(row)
