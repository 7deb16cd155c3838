"""Key tokens of an answer: the words that carry the fact.

They are the labelled words (`forget_spans`) if a row has labels: those of a user, or those that a request found by evidence
(`atwu.methods.weightings.contrast`). Otherwise a rule finds candidates (`atwu.data.answer_units`): values, names and rare words
that the question does not say. Of a text that is to be recited no more (`atwu.data.wording`), they are the words that a request
found the model to have by heart, and before that all words behind its first ones.
"""

from __future__ import annotations

from atwu.data.answer_units import fact_candidates
from atwu.data.schema import Example, Span
from atwu.data.wording import wording_span


def key_token_spans(row: Example) -> tuple[Span, ...]:
    """Return the character ranges of an answer's key tokens; empty for an answer without words, and for a
    text of which the model has none by heart."""
    if row.chance_run is not None:
        return (wording_span(row),) if row.forget_spans is None else row.forget_spans
    if row.forget_spans:
        return row.forget_spans
    return fact_candidates(row)
