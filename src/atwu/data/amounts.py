"""Numbers in a text, in digits and words, each with its scale, currency, unit or percent sign.

Number words are English: "twenty-one", "nineteen ninety", "three hundred and five", "the third". The rules of the offline judge
read them here, too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from atwu._file_reading import read_yaml
from atwu.data.value_parts import BEGIN, END, GLUED, VALUE_WORDS, Value, ValueKind, any_of, split_names

_ENGLISH = read_yaml(Path(__file__).with_name("value_words.yaml"))["english_numbers"]
_SMALL_WORDS, _TENS = (_ENGLISH[name].split() for name in ("small", "tens"))
_SMALL = {word: value for value, word in enumerate(_SMALL_WORDS)}
_SMALL |= {word: 10 * value for value, word in enumerate(_TENS, 2)}
_ORDINALS = {word.removesuffix("y") + ("ieth" if word in _TENS else "th"): value for word, value in _SMALL.items()}
_ORDINALS |= {"first": 1, "second": 2, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12}
_SCALE_WORDS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_WORD = "|".join(sorted((*_SMALL, *_SCALE_WORDS, *_ORDINALS), key=len, reverse=True))
_RUN = re.compile(rf"\b(?:{_WORD})(?:(?:\s+and\s+|[\s-]+)(?:{_WORD}))*\b", re.IGNORECASE)
_PART = re.compile(r"[^\s-]+")


@dataclass(frozen=True, slots=True)
class WrittenNumber:
    start: int
    end: int
    """Half-open character range."""
    value: int
    ordinal: bool
    """Whether its last word is an ordinal, such as "third"."""


def number_runs(text: str) -> list[list[WrittenNumber]]:
    """Find the sequences of number words in a text; one sequence may hold several numbers ("nine and seventeen")."""
    return [_numbers_of(match) for match in _RUN.finditer(text)]


def _numbers_of(run: re.Match[str]) -> list[WrittenNumber]:
    numbers: list[WrittenNumber] = []
    total, current, last = 0, 0, ""
    start = end = run.start()
    ordinal = False

    def close() -> None:
        nonlocal total, current, ordinal
        numbers.append(WrittenNumber(start, end, total + current, ordinal))
        total, current, ordinal = 0, 0, False

    for part in _PART.finditer(run[0]):
        word, begin = part[0].lower(), run.start() + part.start()
        if word == "and":
            if last not in ("hundred", "scale"):
                close()
                last = ""
            continue
        if not last:
            start = begin
        if word == "hundred":
            if current >= 100:
                close()
                start = begin
            current, last = (current or 1) * 100, "hundred"
        elif word in _SCALE_WORDS:
            total, current, last = total + (current or 1) * _SCALE_WORDS[word], 0, "scale"
        else:
            value = _SMALL.get(word, _ORDINALS.get(word, 0))
            kind = "ten"
            if value < 10:
                kind = "one"
            elif value < 20:
                kind = "teen"
            if last in ("hundred", "scale") or (last == "ten" and kind == "one"):
                current += value
            elif last in ("teen", "ten", "sum") and kind != "one" and total == 0 and 10 <= current < 100:
                current = current * 100 + value  # nineteen ninety
            else:
                if last:
                    close()
                start, total, current = begin, 0, value
            last = "sum" if last == "ten" and kind == "one" else kind
            ordinal = word in _ORDINALS
        end = run.start() + part.end()
    if last:
        close()
    return numbers


_DIGITS = (
    r"(?:[1-9]\d{0,2}(?:,\d{2,3})*,\d{3}(?:\.\d+)?"  # 1,240.50 and 12,34,567
    r"|[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?"  # 1.240,50
    r"|[1-9]\d{0,2}(?:[ ']\d{3})+(?:[.,]\d+)?"  # 1 240,50 and 1'240.50
    r"|\d+(?:[.,]\d+)?(?:e[+-]\d{1,3})?"  # 1240.5 and 1.5e-3
    r"|(?<!\S)\.\d+)"  # .5
)
_NUMBER = re.compile(rf"(?<![\w]\.)(?<!\d,)(?:(?<!\S)-)?{BEGIN}{_DIGITS}(?![.,]?\d)")


def _table(name: str) -> dict[str, str]:
    """Return spelling -> key; names of one or two letters in their case ("MB", "mb"), others in lower case."""
    return {_as_listed(word): key for key, words in VALUE_WORDS[name].items() for word in split_names(words)}


def _as_listed(word: str) -> str:
    return word if len(word) <= 2 and word.isalpha() else word.casefold()


_SCALES, _CURRENCIES, _UNITS = _table("scales"), _table("currencies"), _table("units")
_PERCENT = dict.fromkeys(split_names(VALUE_WORDS["percent"]), "%")
_TABLES = {"scales": _SCALES, "currencies": _CURRENCIES, "units": _UNITS, "percent": _PERCENT}
_FOREIGN = {
    word.replace("_", " "): number
    for words in VALUE_WORDS["numbers"].values()
    for number, word in enumerate(words.split(), 2)
    if word != "-"
}
_PRONOUN = re.compile(
    r"(?:\b(?:no|every|any|some|each|this|that|the|which) one|\bone (?:of|another|day))$", re.IGNORECASE
)
_MINUS = re.compile(
    rf"(?<!\d ){BEGIN}(?:minus|menos|meno|минус|ناقص)\s$|(?<!\d)(?:零下|マイナス|영하\s?)$", re.IGNORECASE
)
"""A word for a sign before a number, but not between two: "5 minus 3"."""
_ORDINAL_ENDING = re.compile(rf"(?:st|nd|rd|th|º|ª|er|ère|e|ème|te|ter|ten){END}")


@functools.cache
def _beside(table: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of a table's words after a number, and before it."""
    names = any_of(_TABLES[table])
    return re.compile(rf"[ -]?({names}){END}", re.IGNORECASE), re.compile(rf"{BEGIN}({names}) ?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Counted:
    start: int
    end: int
    number: Decimal
    ordinal: bool = False
    words: bool = False


def find_amounts(text: str) -> Iterator[Value]:
    counted = [*_in_digits(text), *_in_words(text)]
    for item in counted:
        yield _with_neighbours(text, item)


def _in_digits(text: str) -> Iterator[_Counted]:
    for match in _NUMBER.finditer(text):
        sign = "-" if match[0].startswith("-") else ""
        number = Decimal(sign + canonical_number(match[0].removeprefix("-")))
        ending = _ORDINAL_ENDING.match(text, match.end())
        if ending is not None and number == int(number) and match[0].isdigit():
            yield _Counted(match.start(), ending.end(), number, ordinal=True)
        elif not re.match(GLUED, text[match.end() : match.end() + 1]) or _suffix_follows(text, match.end()):
            yield _Counted(*match.span(), number)


def _suffix_follows(text: str, position: int) -> bool:
    """Return whether a unit or scale stands directly behind a number, as in "5mg", "10k"."""
    return any(_after(text, position, table) is not None for table in ("scales", "units", "currencies"))


def _in_words(text: str) -> Iterator[_Counted]:
    for run in number_runs(text):
        for number in run:
            spelling = text[number.start : number.end].casefold()
            around = text[max(number.start - 8, 0) : number.end], text[number.start : number.end + 8]
            if spelling == "one" and (
                _PRONOUN.search(around[0]) or re.match(r"one (?:of|another|day)\b", around[1], re.I)
            ):
                continue
            yield _Counted(number.start, number.end, Decimal(number.value), number.ordinal, words=True)
    for match in _foreign_words().finditer(text):
        yield _Counted(*match.span(), Decimal(_FOREIGN[match[0].lower()]), words=True)


@functools.cache
def _foreign_words() -> re.Pattern[str]:
    return re.compile(rf"{BEGIN}(?:{any_of(_FOREIGN)}){END}", re.IGNORECASE)


def _after(text: str, position: int, table: str) -> tuple[int, str] | None:
    """Return the end and the key of a table's word behind a number; None without one."""
    match = _beside(table)[0].match(text, position)
    key = _TABLES[table].get(_as_listed(match[1])) if match else None
    return (match.end(), key) if match and key else None


def _with_neighbours(text: str, item: _Counted) -> Value:
    """Return the value of a number together with its scale, currency, unit or percent sign."""
    start, end, number = item.start, item.end, item.number
    if item.ordinal:
        return Value(start, end, "ordinal", f"{shortest_decimal(number)}.")
    minus = _MINUS.search(text, max(start - 10, 0), start)
    if minus is not None:
        start, number = minus.start(), -number
    if (scale := _after(text, end, "scales")) is not None:
        end, number = scale[0], number * int(scale[1])
    canonical = shortest_decimal(number)
    before = _beside("currencies")[1].search(text, max(start - 8, 0), start)
    currency = _CURRENCIES.get(_as_listed(before[1])) if before else None
    if before and currency:
        if re.match(rf"m{END}", text[end:]):  # "$2.5m", but "2.5 m" is a length
            end, canonical = end + 1, shortest_decimal(number * 1_000_000)
        return Value(before.start(), end, "money", f"{currency} {canonical}")
    kinds: tuple[tuple[str, ValueKind], ...] = (("percent", "percent"), ("currencies", "money"), ("units", "quantity"))
    for table, kind in kinds:
        if (neighbour := _after(text, end, table)) is not None:
            shown = f"{neighbour[1]} {canonical}" if kind == "money" else f"{canonical} {neighbour[1]}"
            return Value(start, neighbour[0], kind, shown)
    year = (len(canonical) == 4 and canonical[:2] in ("19", "20")) or re.fullmatch(r"1\d{3}", canonical)
    plain = text[item.start : item.end].isdigit() or item.words
    return Value(start, end, "year" if year and plain and end == item.end else "number", canonical)


def canonical_number(text: str) -> str:
    """Return the canonical text of a number in digits: grouping signs go, the decimal sign is a point.

    A single comma before three digits groups them ("1,240"); a single point does so only before "000" ("350.000").
    """
    text = re.sub("[ ']", "", text)
    last = max(text.rfind(","), text.rfind("."))
    if last >= 0:
        sign, after = text[last], text[last + 1 :]
        both = "," in text and "." in text
        grouped = text.count(sign) > 1
        if not both and not text.startswith("0") and len(after) == 3:
            grouped |= sign == "," or after == "000"
        before = re.sub("[,.]", "", text[:last])
        text = before + after if grouped else f"{before}.{after}"
    return shortest_decimal(Decimal(text))


def shortest_decimal(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
