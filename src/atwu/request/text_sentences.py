"""What the verdict says about texts that were to be recited no more, in place of facts and questions."""

from __future__ import annotations

from collections.abc import Sequence

from atwu.data.recitation import Recitation
from atwu.data.schema import Example
from atwu.evaluation.facts.fact_table import FactCount, FactTable

RECITED_MEANS = (
    "A text counts as stated if a longer run of its words follows than in any text that the model never saw, whatever their "
    "capitals and punctuation."
)


def fact_noun(rows: Sequence[Example]) -> str:
    """Return what some rows hold, in the plural."""
    texts = sum(row.chance_run is not None for row in rows)
    if not texts:
        return "facts"
    return "texts" if texts == len(rows) else "facts and texts"


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
