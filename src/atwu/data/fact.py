"""The fact of a row: the parts of its answer that carry it, and its key tokens.

In "Anna Berg has multiple sclerosis, diagnosed in 2019." the parts are "multiple sclerosis" and "2019". One of them answers
the question; blanks, options and the matcher of answers work on parts, never on single words.

Key tokens are the labelled words (`forget_spans`) if a row has labels: those of a user, or those that a request found by
evidence (`atwu.methods.weightings.contrast`). Otherwise a rule finds candidates (`atwu.data.answer_units`): values, names and
rare words that the question does not say. Of a text that is to be recited no more (`wording_span`), they are the words that a
request found the model to have by heart, and before that all words behind its first ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from atwu.data.answer_units import (
    answer_units,
    begins_phrase,
    fact_candidates,
    is_adverb_of_time,
    is_predicate,
)
from atwu.data.languages import WORD, is_caseless, listed_frequency, polar_word, row_language
from atwu.data.passages import wording_span
from atwu.data.question_types import (
    QuestionType,
    asked_prepositions,
    asks_for_subject,
    follows,
    question_type,
    reason_start,
    word_list,
)
from atwu.data.schema import Example, Span, merged_spans
from atwu.data.value_parts import ValueKind
from atwu.data.values import find_values

SEPARATORS = " -'’=."
"""What may lie between two key tokens of one part: "mc^2", "Jane A. Roe", "bird-watcher"."""
_QUOTATION = re.compile(r"[\"“„«](?=\S)((?:[^\s\"“”„«»]+\s?){2,10}?)(?<=\S)[\"”“»]")
"""Two to ten words in quotation marks, such as a title or a motto."""
TELLING_ALONE, TELLING_TOGETHER = 3.7, 5.5
"""Frequencies (log10 of uses in a billion words) below which one word, and each of two words, is hardly said by chance: "arson"
(3.6), "bee stings" (4.3, 3.1), but not "celebrated" (4.3)."""
_TIMES: tuple[ValueKind, ...] = ("date", "year", "time")
_AMOUNTS: tuple[ValueKind, ...] = ("quantity", "percent", "number")


def fact_parts(row: Example) -> tuple[Span, ...]:
    """Return the character ranges of the parts of a fact in the answer, in order; empty for an answer without words."""
    parts: list[Span] = []
    for start, end in key_token_spans(row):
        if parts and not row.answer[parts[-1][1] : start].strip(SEPARATORS) and not begins_phrase(row, start):
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((start, end))
    # Commas and names divide a title such as "The Fox, the Lark and Me", but a quotation is one part.
    for match in _QUOTATION.finditer(row.answer):
        first, last = match.span(1)
        if sum(first <= start and end <= last for start, end in parts) > 1:
            parts.append((first, last))
    return merged_spans(parts)


def asked_part(row: Example) -> Span | None:
    """Return the part that the question asks for; None without parts.

    It is the one in which `asked_span` begins. Else it is the first part of the type that the question asks for: a name for a
    person ("emperor" does not answer "Who was defeated at Ost? The emperor defeated at Ost was Napoleon Venn."), what stands
    behind a preposition or a name for a place, a date or a number for a time or an amount, what follows "because" or "for" for
    a reason. Without such a type it is the first part that is no date ("arson" in "In 2011, Ray Holt was convicted of arson."),
    not the verb, unless the question asks for an event, and not the subject before it ("Her strongest event is the
    butterfly."). It stands behind a preposition if the question has one at its beginning or end.
    """
    parts = fact_parts(row)
    if not parts:
        return None
    if row.asked_span is not None:
        # The span may begin inside a part, since parts are whole phrases.
        for start, end in parts:
            if start <= row.asked_span[0] < end:
                return start, end
    asked = question_type(row)
    kinds = [_value_kind(row.answer, part) for part in parts]
    units = answer_units(row)
    predicates = [part for part in parts if asked != "event" and is_predicate(row, part, units)]
    words = [part for part, kind in zip(parts, kinds, strict=True) if kind is None and part not in predicates]
    names = [part for part in words if any(char.isupper() for char in row.answer[part[0] : part[1]])]
    if asked == "person":
        inside = [part for part in words if follows(row, part[0], word_list(row, "inside"), directly=True)]
        # "Who lives in Ost? In Ost lives Ada Venn.": a name behind "in" is a place.
        outside = [part for part in (*names, *words) if part not in inside]
        return _first(outside, names, words, parts)
    if asked == "place":
        places = [part for part in words if follows(row, part[0], word_list(row, "place_before"))]
        return _name_of(row, _first(places, names, words, parts), names)
    if asked == "time":
        times = [part for part, kind in zip(parts, kinds, strict=True) if kind in _TIMES]
        return _first(times, [part for part in parts if part not in predicates], parts)
    if asked == "amount":
        values = [part for part, kind in zip(parts, kinds, strict=True) if kind is not None and kind not in _TIMES]
        # A number may be in words; "one" is a pronoun more often than a number.
        numbers = [value.start for value in find_values(row.answer) if value.canonical != "1"]
        in_words = [part for part in parts if any(part[0] <= start < part[1] for start in numbers)]
        return _first(values, in_words, parts)
    # A reason, an event, or no type at all: parts that rarely answer a question are left out while others remain.
    kept = _without_adjuncts(row, parts, kinds)
    if asked == "reason":
        start = reason_start(row)
        kept = [part for part in parts if part[0] >= start]
        if not start:
            # "He was let go for forging timesheets."
            kept = [*(part for part in words if follows(row, part[0], word_list(row, "reason_before"))), *kept]
    kept = [part for part in kept if part not in predicates] or kept
    if asked == "event" and len(kept) > 1 and _is_verb_of(row, kept[0], kept[1]):
        kept = kept[1:]
    if asked is None:
        prepositions = asked_prepositions(row)
        kept = [*(part for part in kept if follows(row, part[0], prepositions)), *kept]
    # What stands before the answer is skipped once: a second part before it was never seen.
    if len(kept) > 1 and _is_before_answer(row, kept[0], kept[1], asked):
        kept = kept[1:]
    return _first(kept, parts)


def _first(*choices: Sequence[Span]) -> Span:
    """Return the first part of the first choice that has any."""
    return next(parts[0] for parts in choices if parts)


def _is_before_answer(row: Example, part: Span, following: Span, asked: QuestionType | None) -> bool:
    """Return whether the first part of an answer is none to the question.

    It may stand before the sentence ("As a boy, Ada lost her dog."), or be its subject, before a form of "be" ("Her strongest
    event is the butterfly.") or, if the question asks for something else, before a verb and its object ("The court gave him a
    year.").
    """
    between = row.answer[part[1] : following[0]]
    # The words between the two parts tell what the first one is.
    links = [word.lower() for word in WORD.findall(between)]
    if between.startswith(", ") and links and polar_word(row) is None:
        return _is_before_sentence(row, part[1] + len(", "), links[0])
    if links and links[0] in word_list(row, "copula"):
        return asked is None and _is_subject_of_be(row, part)
    return _is_before_object(row, part, between, links)


def _name_of(row: Example, place: Span, names: Sequence[Span]) -> Span:
    """Return the name of a place that is described first: "Kelbury" of "the harbour town of Kelbury"."""
    if not row.answer[place[0]].islower():
        return place
    for name in names:
        between = row.answer[place[1] : name[0]]
        links = [word.lower() for word in WORD.findall(between)]
        described = bool(links) and links[-1] in word_list(row, "of")
        if name > place and described and not re.search(r"[,;:.]", between):
            return name
    return place


def _is_verb_of(row: Example, part: Span, following: Span) -> bool:
    """Whether a part is a verb, and what follows its object: "She feeds the swans"."""
    if not is_predicate(row, part, answer_units(row)):
        return False
    links = [word.lower() for word in WORD.findall(row.answer[part[1] : following[0]])]
    before_noun = {*word_list(row, "article"), *word_list(row, "possessive")}
    return bool(links) and before_noun.issuperset(links)


def _is_before_sentence(row: Example, start: int, first_word: str) -> bool:
    """Whether a sentence about what the question names begins behind a comma: "As a boy, Ada lost her dog."

    Args:
        start: place behind the comma.
        first_word: the word there, in lower case.
    """
    subject = [unit for unit in answer_units(row) if unit.start == start]
    named = any(unit.asked and unit.content and row.answer[unit.start].isupper() for unit in subject)
    return named or first_word in word_list(row, "pronoun")


def _is_subject_of_be(row: Example, part: Span) -> bool:
    """Whether nothing new stands before a part that a form of "be" follows: *Her strongest event is the butterfly.*"""
    words = _words_before(row, part)
    is_new = len(words) < 2 or words[-1] not in word_list(row, "article")
    said = all(unit.asked or not unit.content for unit in answer_units(row) if unit.end <= part[0])
    return is_new and said


def _is_before_object(row: Example, part: Span, between: str, links: Sequence[str]) -> bool:
    """Whether a part begins its sentence, and a verb with its object follows: "The court gave him a year."

    Args:
        between: text up to the next part.
        links: its words, in lower case.
    """
    words = _words_before(row, part)
    no_objects = {*word_list(row, "preposition"), *word_list(row, "link")}
    is_first = len(words) < 2 and no_objects.union(word_list(row, "pronoun")).isdisjoint(words)
    is_object = bool(links) and links[0] not in no_objects and not re.search(r"[,;:.]", between)
    return is_first and is_object and not asks_for_subject(row)


def _words_before(row: Example, part: Span) -> list[str]:
    return [word.lower() for word in WORD.findall(row.answer[: part[0]])]


def _value_kind(answer: str, part: Span) -> ValueKind | None:
    """Return the kind of the value in digits that a part begins or ends with; None for words."""
    for value in find_values(answer):
        inside = part[0] <= value.start and value.end <= part[1]
        at_end = value.start == part[0] or value.end == part[1]
        if inside and at_end and any(char.isdecimal() for char in answer[value.start : value.end]):
            return value.kind
    return None


def _without_adjuncts(row: Example, parts: Sequence[Span], kinds: Sequence[ValueKind | None]) -> list[Span]:
    """Return the parts without dates and adverbs of time, and without the amount of what follows it ("5 mg of apixaban",
    "5 mg Apixaban")."""
    kept = []
    for place, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        measures = False
        if place + 1 < len(parts):
            between = row.answer[part[1] : parts[place + 1][0]]
            measures = kind in _AMOUNTS and (between == " " or between.strip().lower() in word_list(row, "of"))
        adverb = is_adverb_of_time(row.answer[part[0] : part[1]])
        if kind not in _TIMES and not measures and not adverb:
            kept.append(part)
    return kept


def telling_texts(row: Example) -> tuple[str, ...]:
    """Return the texts that give a fact away when an answer says one of them: the asked part, and further parts that nobody
    says by chance.

    These are names, values, very rare words and phrases of several words: "ketamine", "forging timesheets". Other words in
    lower case say too little alone: "celebrated" in "Bastille Day is celebrated on July 14th." No part of a text gives its
    wording away.
    """
    if row.chance_run is not None:
        return ()
    asked, language = asked_part(row), row_language(row)
    parts = [(part, row.answer[part[0] : part[1]]) for part in fact_parts(row)]
    return tuple(dict.fromkeys(text for part, text in parts if part == asked or gives_away(text, language)))


def gives_away(text: str, language: str) -> bool:
    """Return whether nobody says a part of a fact by chance: a name or value, a very rare word, or several rare ones."""
    if is_name_or_value(text):
        return True
    frequencies = [listed_frequency(word.lower(), language) for word in WORD.findall(text)]
    return (
        min(frequencies, default=TELLING_ALONE) < TELLING_ALONE
        or sum(frequency < TELLING_TOGETHER for frequency in frequencies) > 1
    )


def is_name_or_value(text: str) -> bool:
    """Whether a part of a fact has a capital letter or a digit, or is of a script that has no capitals."""
    return any(char.isupper() or char.isdecimal() for char in text) or is_caseless(text)


def key_token_spans(row: Example) -> tuple[Span, ...]:
    """Return the character ranges of an answer's key tokens; empty for an answer without words, and for a
    text of which the model has none by heart."""
    if row.chance_run is not None:
        # Empty labels of a text say that nothing of it is known by heart; those of a question say nothing.
        if row.forget_spans is None:
            return (wording_span(row),)
        return row.forget_spans
    if row.forget_spans:
        return row.forget_spans
    return fact_candidates(row)
