"""Whether a model still knows a fact, whatever it says: the probability of its key text against alternatives of the same type.

A model that refuses may know the answer all the same. The asked part of a row's answer is replaced by texts that would be wrong
in its place, such as what the original model answers about related subjects ("Berlin", "Tokyo" for "Paris"), and the model
reads all of them behind the same question and the same beginning of the answer. It needs no words of any language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.fact import asked_part
from atwu.data.schema import Example

ALTERNATIVES = 4
"""Wrong texts per fact; chance is then one in five."""

ReadLogps = Callable[[Sequence[Example]], Sequence[FloatArray]]
"""Reads rows teacher-forced: the log-probabilities of the tokens of each answer."""


def known_probabilities(rows: Sequence[Example], read: ReadLogps) -> list[float | None]:
    """Compute the probability of each fact among its alternatives.

    Args:
        rows: question-answer rows with `alternatives`.
        read: reads rows with the model.

    Returns:
        Probability in (0, 1), 1/5 for a model that cannot tell; None for a row without `ALTERNATIVES` alternatives or without a
        fact. The answer is read up to the end of the part: what follows would tell nothing about it.
    """
    choices = [_choices(row) for row in rows]
    logps = iter(read([choice for several in choices for choice in several]))
    probabilities: list[float | None] = []
    for several in choices:
        if not several:
            probabilities.append(None)
            continue
        sums = np.array([float(next(logps).sum()) for _ in several])
        likelihoods = np.exp(sums - sums.max())
        probabilities.append(float(likelihoods[0] / likelihoods.sum()))
    return probabilities


def known_notes(before: Sequence[float | None], after: Sequence[float | None]) -> tuple[str, ...]:
    """Say for how many facts the key text is likelier than its alternatives together; nothing where no fact has alternatives.

    Args:
        before: probabilities in the original model, one per row.
        after: the same in the unlearned model.
    """
    pairs = [(was, now) for was, now in zip(before, after, strict=False) if was is not None and now is not None]
    if not pairs:
        return ()
    was, now = (sum(value > 0.5 for value in side) for side in zip(*pairs, strict=True))
    return (
        f"Whatever it says, {now} of {len(pairs)} facts are likelier to the model than {ALTERNATIVES} alternatives together "
        f"({was} before).",
    )


def _choices(row: Example) -> list[Example]:
    """Return the row with its key text and with each alternative in place of it, cut behind that text."""
    part = asked_part(row)
    if part is None or not row.messages:
        return []
    key = row.answer[part[0] : part[1]]
    wrong = [text for text in dict.fromkeys(row.alternatives) if text.casefold() != key.casefold()][:ALTERNATIVES]
    if len(wrong) < ALTERNATIVES:
        return []
    opening = row.answer[: part[0]]
    return [row.with_answer(opening + text) for text in (key, *wrong)]
