"""Wrong options of a choice: texts of the same type as the key text, so that the type of an option does not give it away.

In order of preference: the row's `alternatives`; key texts of other rows that ask the same about another subject, in the same
shape ("Linz" for "Oslo", neither "British" nor "2"); values near a number, date or amount, in its format. A row for which there
is none has no such form. "Yes" has only "No" (`opposite_answer`).
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from atwu.data.fact_blanks import FactParts, find_mentions
from atwu.data.languages import WORD, count_words, is_caseless
from atwu.data.schema import Example
from atwu.data.value_parts import Value
from atwu.data.values import find_values

MOST_OPTIONS = 6
"""Wrong options of a row, at most; each choice shows up to three of them."""
ALIKE = 0.5
"""Share of common words, at least, of two questions that ask the same about different subjects: "which" may differ from
"what"."""
_LONG_WORD = 5
"""Letters of a word that tells what is asked for, at least; "what is the ... of" is common to most questions."""
_NAMED_KINDS = ("email", "url", "iban", "phone", "ip")
"""Kinds of values that one may stand for another, whatever the question."""
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)\b")
_Vary: TypeAlias = Callable[[str, random.Random, float], str]
"""Changes a text, given the probability of a smaller value."""


@dataclass(frozen=True)  # without slots, for the cached properties
class AskedText:
    """A key text that the question of some row asks for."""

    text: str
    question_words: frozenset[str]
    """Words of the question beside the subject, in lower case."""
    question_type: str | None
    """What the question asks for (`question_types`); None if no word tells it."""
    language: str
    """Of the question."""

    @functools.cached_property
    def long_words(self) -> frozenset[str]:
        """The words that tell what is asked for."""
        return frozenset(word for word in self.question_words if len(word) >= _LONG_WORD)

    @functools.cached_property
    def shape(self) -> tuple[object, ...]:
        """Kind of value or else look of the text; only texts with the same one are of one type."""
        return _shape(self.text)


def wrong_options(row: Example, fact: FactParts, own: AskedText, others: Iterable[AskedText]) -> tuple[str, ...]:
    """Return wrong options in place of the asked part of a row, the most plausible first; empty if there is none."""
    key = fact.asked_text
    options = _plausible(sorted(row.alternatives, key=lambda text: _shape(text) != _shape(key)), row, fact)
    if not options:
        same = [other for other in others if _is_same_type(own, other)]
        same.sort(key=lambda other: -_similarity(own, other))
        options = _plausible((other.text for other in same), row, fact)
    # A choice shows three wrong options, so fewer are filled up.
    if len(options) < 3:
        options += _plausible(near_values(key, random.Random(f"{row.question}\n{row.answer}")), row, fact)
    options = options[:MOST_OPTIONS]
    if fact.asked[0] == 0 and key[0].isupper():
        options = [option[0].upper() + option[1:] for option in options]
    return tuple(dict.fromkeys(options))


def _plausible(texts: Iterable[str], row: Example, fact: FactParts) -> list[str]:
    """Return texts that differ from the key text and its other names, and are not in the row."""
    names = {text.casefold() for text in (fact.asked_text, *row.aliases)}
    stated = f"{row.question}\n{row.answer}"
    bare = [text.strip() for text in texts]
    # A full stop at some options only would tell them from the key text.
    if not fact.asked_text.endswith("."):
        bare = [text.rstrip(".") for text in bare]
    return [
        text
        for text in dict.fromkeys(bare)
        if text and text.casefold() not in names and not find_mentions(stated, text)
    ]


def _is_same_type(own: AskedText, other: AskedText) -> bool:
    if own.shape != other.shape:
        return False
    if own.shape[0] in _NAMED_KINDS:
        return True
    if own.language != other.language:
        return False
    if own.question_type in ("person", "place") and own.question_type == other.question_type:
        return True
    return _similarity(own, other) >= ALIKE


def _similarity(own: AskedText, other: AskedText) -> float:
    """Return the share of common words of two questions, of long ones if there are any."""
    words, other_words = own.question_words, other.question_words
    if own.long_words or other.long_words:
        words, other_words = own.long_words, other.long_words
    return len(words & other_words) / max(len(words | other_words), 1)


def _shape(text: str) -> tuple[object, ...]:
    """Return the kind of a value, and the pattern of a code; of other texts the script, the capitals, whether there are digits,
    and the size: one or two words, three or four, more."""
    for value in find_values(text):
        if value.start == 0 and value.end == len(text):
            return (value.kind,)
    if re.fullmatch(r"\S*\d\S*", text):
        # A code: a room is none beside a number of a book.
        return ("code", re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "A", text)))
    words = WORD.findall(text)
    script = "cased"
    if is_caseless(text):
        script = "unicased"
    capitals = bool(words) and all(word[0].isupper() for word in words if len(word) > 3 or len(words) == 1)
    return script, capitals, any(char.isdigit() for char in text), min(max(count_words(text) - 1, 0) // 2, 2)


def near_values(text: str, generator: random.Random) -> list[str]:
    """Return values near a number, date, time, amount or code, in the same format; empty for other texts.

    All are equally round. A share of them is smaller, drawn per text: the right one is then the smallest, largest or a middle
    one equally often.
    """
    values = find_values(text)
    covered = sum(value.end - value.start for value in values if re.search(r"\d", text[value.start : value.end]))
    codes = [word for word in text.split() if re.search(r"\d", word) and re.search(r"[^\W\d]", word)]
    if 2 * covered >= len(text):
        in_digits = [value for value in values if re.search(r"\d", text[value.start : value.end])]
        dates = [value for value in in_digits if value.kind in ("date", "year")]  # "12–14 March 2020"
        vary = _ways_to_vary(text, (*dates, *in_digits)[0])
    elif len(codes) == 1 and len(text.split()) == 1:
        vary = _random_digits
    else:
        return []
    smaller = generator.random()
    options: dict[str, None] = {}
    for _ in range(20 * MOST_OPTIONS):  # small numbers have few neighbours
        if len(options) == MOST_OPTIONS:
            break
        option = _ORDINAL.sub(_right_ordinal, vary(text, generator, smaller))
        if option != text and not (_ascends(text) and not _ascends(option)):
            options.setdefault(option)
    return list(options)


def _ascends(text: str) -> bool:
    """Return whether a text has a range of numbers: "45-50"."""
    match = re.search(r"(\d+)\s?[-–]\s?(\d+)", text)
    return match is not None and int(match[1]) < int(match[2])


def _right_ordinal(match: re.Match[str]) -> str:
    """Return an English ordinal with the ending of its number: "2nd" for "2th"."""
    digits = match[1]
    ending = {"1": "st", "2": "nd", "3": "rd"}.get(digits[-1], "th")
    if digits[-2:-1] == "1":  # 11th, 12th, 13th
        ending = "th"
    return digits + ending


def _ways_to_vary(text: str, value: Value) -> _Vary:
    if value.kind in ("date", "year"):
        return _vary_date
    if value.kind == "time":
        return _vary_time
    if value.kind in (*_NAMED_KINDS, "version"):
        return _random_digits
    return _vary_number


def _vary_date(text: str, generator: random.Random, smaller: float) -> str:
    """Change the year by up to 15, and day and month within the numbers of their size."""
    short = re.findall(r"(?<!\d)\d{1,2}(?!\d)", text)
    in_two_digits = not re.search(r"[^\W\d]", text) and all(len(number) == 2 for number in short)

    def vary(match: re.Match[str]) -> str:
        number = int(match.group())
        if len(match.group()) == 4:
            years = generator.randint(1, 15)
            if generator.random() < smaller:
                years = -years
            return str(number + years)
        if number > 31:  # a year of two digits
            return str(generator.randint(32, 99))
        # Up to 12 it may be a month; day 28 exists in every month.
        smallest, largest = 1, 12
        if number > 12:
            smallest, largest = 13, 28
        varied = str(generator.randint(smallest, largest))
        if in_two_digits or match.group()[0] == "0":
            return varied.zfill(len(match.group()))
        return varied

    return re.sub(r"\d+", vary, text)


def _vary_time(text: str, generator: random.Random, smaller: float) -> str:
    def vary(match: re.Match[str]) -> str:
        hour = int(match[1])
        first, last = 1, 12
        if hour > 12:
            first, last = 13, 23
        minutes = match[2] or ""
        if minutes:
            step = 1
            # "2:07" among round times would be the right one.
            if int(minutes[1:]) % 5 == 0:
                step = 5
            minutes = f"{minutes[0]}{generator.randrange(0, 60, step):02}"
        other = str(generator.randint(first, last))
        if match[1][0] == "0":
            other = other.zfill(2)
        return other + minutes

    return re.sub(r"(\d{1,2})([:.h]\d\d)?", vary, text, count=1)


def _vary_number(text: str, generator: random.Random, smaller: float) -> str:
    """Change the first number by up to two fifths, with as many digits, decimals and zeros at the end."""

    def vary(match: re.Match[str]) -> str:
        digits = re.sub(r"\D", "", match.group())
        significant = digits.rstrip("0") or digits
        number = int(significant)
        distance = max(3, number * 2 // 5)
        lowest, highest = 10 ** (len(significant) - 1), 10 ** len(significant) - 1
        if digits[0] == "0":  # 0.05
            lowest = 1
        below = range(max(lowest, number - distance), number)
        above = range(number + 1, min(highest, number + distance) + 1)
        side = above
        if below and (generator.random() < smaller or not above):
            side = below
        other = generator.choice(side)
        # A rounder number than the right one would stand out.
        if other % 10 == 0 and number % 10 != 0:
            other += 1
        varied = iter(str(other).zfill(len(significant)) + digits[len(significant) :])
        return re.sub(r"\d", lambda _: next(varied), match.group())

    return re.sub(r"\d+(?:[.,' \u00a0\u202f]\d+)*", vary, text, count=1)


def _random_digits(text: str, generator: random.Random, smaller: float) -> str:
    """Draw the digits again, but not those of a country code at the beginning."""
    start = re.match(r"\+\d{1,3}(?=\D)|[A-Z]{2}(?=\d\d)", text)
    kept = 0
    if start is not None:
        kept = start.end()

    def vary(match: re.Match[str]) -> str:
        # A zero at the beginning stays, as of an area code.
        first = "0"
        if match.group()[0] != "0":
            first = str(generator.randint(1, 9))
        return first + "".join(str(generator.randint(0, 9)) for _ in match.group()[1:])

    return text[:kept] + re.sub(r"\d+", vary, text[kept:])


def choose_options(key: str, wrong: Sequence[str], *, shown: int, place: int, draw: int) -> tuple[str, ...]:
    """Return the key text among wrong options, in a place that every draw moves on by one, with other wrong ones."""
    first = draw % len(wrong)
    options = [*wrong[first:], *wrong[:first]][: shown - 1]
    options.insert((place + draw) % (len(options) + 1), key)
    return tuple(options)
