"""What a question asks for: a person, a place, a time, an amount, a reason or an event (`question_words.yaml`)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from atwu._file_reading import read_yaml
from atwu.data.english_verbs import is_auxiliary
from atwu.data.languages import WORD, is_unspaced, row_language
from atwu.data.schema import Example

QuestionType: TypeAlias = Literal["person", "place", "time", "amount", "reason", "event"]
_BEGINNING: Mapping[QuestionType, int] = {"place": 2, "person": 2, "time": 3, "amount": 3, "reason": 2}
"""Words at the beginning of a question among which one asks for it: "to whom", "since when", "for how many". The Arabic word
for "who" is also "from", which begins "from where"."""
_NOUN_PLACE = 5
"""Words at the beginning of a question among which a noun tells what is asked for: "What is the monthly rent of", but not
"What does she take every day?"."""
_NOUNS: Mapping[QuestionType, str] = {"time": "time_noun", "amount": "amount_noun"}


@functools.cache
def _question_words() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return language -> name of a list -> its words."""
    languages: dict[str, dict[str, str]] = read_yaml(Path(__file__).with_name("question_words.yaml"))
    return {
        language: {name: tuple(word.replace("_", " ") for word in words.split()) for name, words in lists.items()}
        for language, lists in languages.items()
    }


def question_type(row: Example) -> QuestionType | None:
    """Return what a question asks for; None if no word tells it, and for "Who is Ada Venn?", which asks for no name."""
    lists = _question_words().get(row_language(row))
    if lists is None:
        return None
    question = row.question.lower()
    words = WORD.findall(question)
    for kind, beginning in _BEGINNING.items():
        first = " ".join(words[:beginning])
        if any(
            word in words[:beginning] or word == first or (is_unspaced(word) and word in question)
            for word in lists[kind]
        ):
            spelled = WORD.findall(row.question)
            only_a_name = len(spelled) > 2 and all(word[0].isupper() for word in spelled[2:])
            if kind == "person" and only_a_name and spelled[1].lower() in lists["copula"]:
                return None
            return kind
    for kind, nouns in _NOUNS.items():
        if any(word in words[:_NOUN_PLACE] or (is_unspaced(word) and word in question) for word in lists[nouns]):
            return kind
    if any(word in words or (is_unspaced(word) and word in question) for word in lists["event"]):
        return "event"
    if any(word in words[2:] for word in lists.get("event_verb", ())):
        return "event"
    return None


def asked_prepositions(row: Example) -> tuple[str, ...]:
    """Return the preposition that a question begins or ends with, which its answer follows, too; behind the first one also all
    others: "In which team does she play?", "What is she allergic to?"."""
    words = _words(row.question)
    prepositions = word_list(row, "preposition")
    if words and words[0] in prepositions:
        return prepositions
    return tuple(word for word in prepositions if word in words[-1:])


def asks_for_subject(row: Example) -> bool:
    """Return whether a question may ask for the subject of its verb ("What scares her?"): not for a reason or an event, and in
    English not behind an auxiliary ("What does she fear?")."""
    auxiliary = row_language(row) == "en" and any(is_auxiliary(word) for word in _words(row.question)[1:4])
    return not auxiliary and question_type(row) not in ("reason", "event")


def follows(row: Example, start: int, listed: Collection[str], *, directly: bool = False) -> bool:
    """Return whether one of some words is before a position of the answer, with nothing between but an article and words of the
    question; `directly` without words of the question."""
    before = row.answer[:start]
    between = set(word_list(row, "article")).difference(listed)
    if not directly:
        between |= set(_words(row.question)).difference(listed)
    words = _words(before)
    while words and words[-1] in between:
        words.pop()
    return any(word in words[-1:] or (is_unspaced(word) and before.endswith(word)) for word in listed)


def _words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def word_list(row: Example, name: str) -> tuple[str, ...]:
    """Return a list of `question_words.yaml` in the language of a row; empty without one."""
    return _question_words().get(row_language(row), {}).get(name, ())


def reason_start(row: Example) -> int:
    """Return where a reason begins in an answer: behind its first "because", else 0."""
    words = word_list(row, "because")
    for match in WORD.finditer(row.answer):
        if match.group().lower() in words:
            return match.end()
    # Without spaces, a word is no match of its own.
    ends = [row.answer.find(word) + len(word) for word in words if is_unspaced(word) and word in row.answer]
    return max(ends, default=0)
