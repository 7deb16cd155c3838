"""Which words of a text a model has by heart.

A word of a memorized text is likely behind all that precedes it, and unlikely behind a foreign opening and the two words
before it, which tell a model that never saw the text as much about grammar. The difference is its evidence; words that any
model would say there, such as the second word of "as well as", have none: the preserve loss keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.general_rows import general_text
from atwu.data.passages import cut_words, word_spans, wording_span
from atwu.data.schema import Example, Span
from atwu.methods.weightings.contrast import TOLD_APART, ReadRows, sum_logps

KEPT_BEFORE = 2
"""Words of the text before a word that are read with it behind a foreign opening: with none, its grammar would surprise; with
many, a model that memorized the text goes on with it."""
READ_TOGETHER = 2
"""Words of which the evidence comes from one foreign reading; more are faster, and the last one has more of its own text before
it."""
FOREIGN_WORDS = 16
"""Words of a foreign opening: a sentence, so that no text begins where the model reads."""
LEAST_LOGP = -2.3
"""Log-probability below which a word is not known by heart, however much its own text raises it: one in ten."""


def wording_evidence(rows: Sequence[Example], read: ReadRows) -> list[FloatArray]:
    """Compute how much each word of texts is known by heart, in nats, at least 0.

    Args:
        rows: plain texts.
        read: reads rows with the model that knows them.

    Returns:
        Arrays of shape (words,), one per text; 0 for a word that stays unlikely behind its own text.
    """
    foreign = [cut_words(text.answer, FOREIGN_WORDS)[0] for text in general_text()]
    words = [word_spans(row.answer) for row in rows]
    own = read(rows)
    readings = [_foreign_readings(row, spans, foreign) for row, spans in zip(rows, words, strict=True)]
    elsewhere = iter(read([Example((), text) for several in readings for text, _ in several]))
    evidence: list[FloatArray] = []
    for spans, reading, several in zip(words, own, readings, strict=True):
        by_heart = sum_logps(reading, spans, without=np.nan)
        by_grammar = [sum_logps(next(elsewhere), places, without=np.nan) for _, places in several]
        unknown = np.concatenate([np.array([]), *by_grammar])
        # A word without tokens of its own has no log-probability (NaN), hence no evidence.
        gain = np.nan_to_num(np.maximum(by_heart - unknown, 0.0))
        evidence.append(np.where(by_heart >= LEAST_LOGP, gain, 0.0))
    return evidence


def spans_by_heart(row: Example, evidence: FloatArray) -> tuple[Span, ...]:
    """Return the words of a text that a model has by heart, those that follow each other joined; none of its first words.

    Args:
        evidence: of the text, from `wording_evidence`.
    """
    first, _ = wording_span(row)
    joined: list[Span] = []
    before = -1
    for place, (span, nats) in enumerate(zip(word_spans(row.answer), evidence, strict=True)):
        if span[0] < first or nats < TOLD_APART:
            continue
        if joined and before == place - 1:
            joined[-1] = joined[-1][0], span[1]
        else:
            joined.append(span)
        before = place
    return tuple(joined)


def _foreign_readings(
    row: Example, words: Sequence[Span], foreign: Sequence[str]
) -> list[tuple[str, tuple[Span, ...]]]:
    """Return texts of a foreign opening and a few words of a row, with the places of the words to be read there."""
    readings = []
    for number, place in enumerate(range(0, len(words), READ_TOGETHER)):
        wanted = words[place : place + READ_TOGETHER]
        start = words[max(0, place - KEPT_BEFORE)][0]
        opening = f"{foreign[number % len(foreign)]} "
        text = opening + row.answer[start : wanted[-1][1]]
        moved = len(opening) - start
        readings.append((text, tuple((begin + moved, end + moved) for begin, end in wanted)))
    return readings
