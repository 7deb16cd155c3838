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

from atwu.data.value_parts import BEGIN, END, GLUED, VALUE_WORDS, Value, ValueKind, any_of, split_names

_ENGLISH = VALUE_WORDS["english_numbers"]
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
            # "Three hundred and five" is one number, "nine and seventeen" are two.
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
            # "Three hundred five" and "twenty-one" are sums; "nineteen ninety" is a year of two pairs of digits.
            if last in ("hundred", "scale") or (last == "ten" and kind == "one"):
                current += value
            elif last in ("teen", "ten", "sum") and kind != "one" and total == 0 and 10 <= current < 100:
                current = current * 100 + value
            else:
                # "Nine seventeen" is no number, but two.
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
    if len(word) <= 2 and word.isalpha():
        return word
    return word.casefold()


_SCALES, _CURRENCIES, _UNITS = _table("scales"), _table("currencies"), _table("units")
_PERCENT = dict.fromkeys(split_names(VALUE_WORDS["percent"]), "%")
_TABLES = {"scales": _SCALES, "currencies": _CURRENCIES, "units": _UNITS, "percent": _PERCENT}
_LETTER_SCALES = {"m": 1_000_000, "M": 1_000_000, "B": 1_000_000_000}
"""Letters behind the number of an amount whose currency stands before it: "$3M"."""
_CHINESE_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2}
_CHINESE_SCALES = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "億": 10**8, "亿": 10**8}
CHINESE_NUMBER = f"[{''.join((*_CHINESE_DIGITS, *_CHINESE_SCALES))}]"
_CHINESE_COUNTED = re.compile(
    rf"(?<!{CHINESE_NUMBER})(?!一[个個名人]){CHINESE_NUMBER}+(?=[元円圆日欧美岁歲歳才年个個名人公平米天]|ユーロ|ドル)"
)
"""A number in Chinese characters before what it counts; elsewhere they are parts of names ("五十嵐"), and "一名" is an
article."""
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
_HALF = re.compile(rf"(?: and a half| ?½| 1/2){END}", re.IGNORECASE)
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
    for item in (*_in_digits(text), *_in_words(text)):
        yield _with_neighbours(text, item)


def _in_digits(text: str) -> Iterator[_Counted]:
    for match in _NUMBER.finditer(text):
        sign = "-" if match[0].startswith("-") else ""
        number = Decimal(sign + canonical_number(match[0].removeprefix("-")))
        ending = _ORDINAL_ENDING.match(text, match.end())
        if ending is not None and number == int(number) and match[0].isdigit():
            yield _Counted(match.start(), ending.end(), number, ordinal=True)
            continue
        # Letters directly behind make it a part of a code ("3D"), unless they are a unit or scale ("5mg", "10k").
        glued = re.match(GLUED, text[match.end() : match.end() + 1]) is not None
        glued &= _HALF.match(text, match.end()) is None
        if re.match(rf"[MB]{END}", text[match.end() :]) and _beside("currencies")[1].search(text[: match.start()][-8:]):
            glued = False
        if not glued or any(
            _after(text, match.end(), table) is not None for table in ("scales", "units", "currencies")
        ):
            yield _Counted(*match.span(), number)


def _in_words(text: str) -> Iterator[_Counted]:
    for run in number_runs(text):
        for number in run:
            spelling = text[number.start : number.end].casefold()
            before, behind = text[max(number.start - 8, 0) : number.end], text[number.start : number.end + 8]
            pronoun = _PRONOUN.search(before) or re.match(r"one (?:of|another|day)\b", behind, re.I)
            if spelling == "one" and pronoun:
                continue
            yield _Counted(number.start, number.end, Decimal(number.value), number.ordinal, words=True)
    for match in _CHINESE_COUNTED.finditer(text):
        yield _Counted(*match.span(), Decimal(read_chinese_number(match[0])), words=True)
    for match in _foreign_words().finditer(text):
        yield _Counted(*match.span(), Decimal(_FOREIGN[match[0].lower()]), words=True)


def read_chinese_number(text: str) -> int:
    """Return the number in Chinese characters: 12000 for "一万二千", and 1986 for "一九八六", which has no scales."""
    if not any(char in _CHINESE_SCALES for char in text):
        return int("".join(str(_CHINESE_DIGITS[char]) for char in text))
    total = below = digit = 0
    for char in text:
        if char in _CHINESE_DIGITS:
            digit = _CHINESE_DIGITS[char]
            continue
        scale = _CHINESE_SCALES[char]
        if scale >= 10**4:
            total, below = total + (below + digit or 1) * scale, 0
        else:
            below += (digit or 1) * scale
        digit = 0
    return total + below + digit


@functools.cache
def _foreign_words() -> re.Pattern[str]:
    return re.compile(rf"{BEGIN}(?:{any_of(_FOREIGN)}){END}", re.IGNORECASE)


def _after(text: str, position: int, table: str) -> tuple[int, str] | None:
    """Return the end and the key of a table's word behind a number; None without one."""
    match = _beside(table)[0].match(text, position)
    if match is None:
        return None
    # The pattern ignores case, but a name of one or two letters counts in its own case only: "MB" is no "mb".
    key = _TABLES[table].get(_as_listed(match[1]))
    if key is None:
        return None
    return match.end(), key


def _with_neighbours(text: str, item: _Counted) -> Value:
    """Return the value of a number together with its scale, currency, unit or percent sign."""
    start, end, number = item.start, item.end, item.number
    if item.ordinal:
        return Value(start, end, "ordinal", f"{shortest_decimal(number)}.")
    minus = _MINUS.search(text, max(start - 10, 0), start)
    if minus is not None:
        start, number = minus.start(), -number
    half = _HALF.match(text, end)
    if half is not None and number == int(number):
        end, number = half.end(), number + Decimal("0.5")
    scale = _after(text, end, "scales")
    if scale is not None:
        end, number = scale[0], number * int(scale[1])
    canonical = shortest_decimal(number)
    before = _beside("currencies")[1].search(text, max(start - 8, 0), start)
    currency = None
    if before is not None:
        currency = _CURRENCIES.get(_as_listed(before[1]))
    if before is not None and currency:
        letter = re.match(rf"[mMB]{END}", text[end:])
        if letter is not None:  # "$2.5m", but "2.5 m" is a length
            end, canonical = end + 1, shortest_decimal(number * _LETTER_SCALES[letter[0]])
        return Value(before.start(), end, "money", f"{currency} {canonical}")
    kinds: tuple[tuple[str, ValueKind], ...] = (("percent", "percent"), ("currencies", "money"), ("units", "quantity"))
    for table, kind in kinds:
        neighbour = _after(text, end, table)
        if neighbour is not None:
            shown = f"{canonical} {neighbour[1]}"
            if kind == "money":
                shown = f"{neighbour[1]} {canonical}"
            return Value(start, neighbour[0], kind, shown)
    # "1,984" and "1984 thousand" are no years.
    plain = text[item.start : item.end].isdigit() or item.words
    year = re.fullmatch(r"1\d{3}|20\d\d", canonical) is not None
    if year and plain and end == item.end:
        return Value(start, end, "year", canonical)
    return Value(start, end, "number", canonical)


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
        text = f"{before}.{after}"
        if grouped:
            text = before + after
    return shortest_decimal(Decimal(text))


def shortest_decimal(number: Decimal) -> str:
    # `normalize` of Decimal would write 1200 as 1.2E+3.
    text = f"{number:f}"
    if "." not in text:
        return text
    return text.rstrip("0").rstrip(".")
