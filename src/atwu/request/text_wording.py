"""Texts that must not be recited: which words the model has by heart, how long a run says nothing, and what the verdict says.

A model continues a text that it never saw with some of its words, too: "at the end of". How many in a row is measured on texts
that were written for this project, or on holdout texts of the user.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from atwu.data.general_rows import unseen_texts
from atwu.data.passages import LEAST_CHANCE_RUN, MOST_CHANCE_RUN, Recitation, has_wording, word_spans, wording_span
from atwu.data.schema import Example, Span, overlap
from atwu.evaluation.facts.askings import recitation_askings
from atwu.evaluation.facts.fact_table import Answerer, FactCount, FactTable, ask_facts
from atwu.methods.weightings.contrast import ReadRows, spans_by_heart, wording_evidence

MOST_WORDS_READ = 20_000
"""Words of texts that are read one by one to find those known by heart, at most: more would be read for hours."""


def measure_chance_run(answers: Answerer, unseen: Sequence[Example] = ()) -> int:
    """Return the longest run of words that a model says of texts that it never saw, continued from several places.

    Args:
        answers: the model.
        unseen: texts; by default those of this project.
    """
    texts = [replace(row, chance_run=1) for row in unseen or unseen_texts()]
    said = ask_facts(answers, recitation_askings(texts)).recitations
    longest = max((recitation.longest_run for recitation in said), default=0)
    return min(max(longest, LEAST_CHANCE_RUN), MOST_CHANCE_RUN)


def measure_text_chance(unseen: Sequence[Example], read: ReadRows) -> float | None:
    """Return the highest mean probability that a model gives to the words of a text that it never saw; None without texts.

    Args:
        unseen: texts (`unseen_wordings`).
        read: reads rows with the model. The mean is the geometric one, as in `key_token_probability`.
    """
    probabilities = []
    for row, tokens in zip(unseen, read(unseen), strict=True):
        wording = wording_span(row)
        inside = [
            float(logp) for logp, offset in zip(tokens.logps, tokens.offsets, strict=True) if overlap(offset, wording)
        ]
        probabilities.append(math.exp(sum(inside) / len(inside)))
    return max(probabilities, default=None)


def mark_wording(rows: Sequence[Example], read: ReadRows, chance_run: int) -> tuple[Example, ...]:
    """Return rows, of which the texts without labels have the words marked that the model has by heart.

    All words behind the first ones are marked if it has none of any text by heart, so that a run of a given length trains on
    something, and of texts that are too long to be read word by word.
    """
    places = [place for place, row in enumerate(rows) if has_wording(row)]
    if not places:
        return tuple(rows)
    spans: dict[int, tuple[Span, ...]] = {place: (wording_span(rows[place]),) for place in places}
    if sum(len(word_spans(rows[place].answer)) for place in places) <= MOST_WORDS_READ:
        evidence = wording_evidence([rows[place] for place in places], read)
        by_heart = [spans_by_heart(rows[place], values) for place, values in zip(places, evidence, strict=True)]
        if any(by_heart):
            spans = dict(zip(places, by_heart, strict=True))
    return tuple(
        replace(row, forget_spans=spans[place], chance_run=chance_run) if place in spans else row
        for place, row in enumerate(rows)
    )


def unseen_wordings(forget: Sequence[Example], holdout: Sequence[Example]) -> tuple[Example, ...]:
    """Return texts that the model never saw, to be recited like the texts among forget rows; none without such texts.

    Args:
        forget: forget rows with their facts marked.
        holdout: holdout rows; texts among them are used instead of those of this project.
    """
    chance_run = next((row.chance_run for row in forget if row.chance_run is not None), None)
    if chance_run is None:
        return ()
    texts = [row for row in holdout if has_wording(row)]
    return tuple(replace(row, chance_run=chance_run) for row in texts or unseen_texts())


RECITED_MEANS = (
    "A text counts as stated if a longer run of its words follows than in any text that the model never saw, whatever their "
    "capitals and punctuation."
)


def count_facts(rows: Sequence[Example]) -> str:
    """Return how many facts and texts some rows hold, such as "3 facts and 1 text"."""
    texts = sum(row.chance_run is not None for row in rows)
    numbers = {"fact": len(rows) - texts, "text": texts}
    return " and ".join(count_of(number, noun) for noun, number in numbers.items() if number)


def only_texts(answers: FactTable) -> bool:
    """Return whether all answers continue texts whose wording was asked for."""
    return bool(answers.records) and len(answers.recitations) == len(answers.records)


def recited_sentence(before: FactTable, after: FactTable) -> str:
    """Return how many continuations recite their text, and how much of it they say."""
    was, now = before.count(), after.count()
    first, last = before.recitations, after.recitations
    verb = "recites" if now.answers_stating == 1 else "recite"
    whose = "its" if now.facts == 1 else "their"
    places = count_of(after.askings_per_fact, "place")
    return (
        f"{count_of(now.facts, 'text')}, continued from {places}: {now.answers_stating} of "
        f"{count_of(now.answers, 'continuation')} {verb} {whose} text ({was.answers_stating} before). "
        f"{_mean(last, 'share')} of the words follow at once and in order ({_mean(first, 'share')} before), ROUGE-L "
        f"{_mean(last, 'rouge_l')} ({_mean(first, 'rouge_l')} before), and the longest run has "
        f"{count_of(longest_run(last), 'word')} ({longest_run(first)} before, {chance_run(last)} in texts that the model never "
        "saw)."
    )


def recited_from_third_sentence(was: FactCount, now: FactCount) -> str:
    verb = "is" if now.facts_stated == 1 else "are"
    return (
        f"Continued from the first third, {now.facts_stated} of {count_of(now.facts, 'text')} {verb} recited "
        f"({was.facts_stated} before)."
    )


def not_recited_sentence(before: FactTable) -> str:
    """Return why there is no text to forget."""
    count, said = before.count(), before.recitations
    texts, whose = f"any of these {count.facts} texts", "their"
    if count.facts == 1:
        texts, whose = "this text", "its"
    some = ""
    if count.answers_stating:
        some = f" but for {count.answers_stating} of {count.answers} continuations"
    return (
        f"The original model does not recite {texts}{some}: it says at most {longest_run(said)} of {whose} words in a row, and "
        f"up to {chance_run(said)} of texts that it never saw."
    )


def longest_run(recitations: Sequence[Recitation]) -> int:
    return max((recitation.longest_run for recitation in recitations), default=0)


def chance_run(recitations: Sequence[Recitation]) -> int:
    return max((recitation.chance_run for recitation in recitations), default=0)


def count_of(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _mean(recitations: Sequence[Recitation], name: str) -> str:
    values = [float(getattr(recitation, name)) for recitation in recitations]
    return f"{100 * sum(values) / max(len(values), 1):.0f} %"
