"""Values of a text, found whole: dates, times, amounts, numbers, addresses and others that are spelled in several ways.

`find_values` returns spans that never cut a date, number or address, each with a canonical text that is the same for all
its spellings: "1,240", "1 240" and "1240" are "1240"; "May 12, 1986" and "1986年5月12日" are "1986-05-12". Key tokens, blanks
and the matcher of answers share these spans. Digits of all scripts are read; months, currencies, units and number words in the
languages of `value_words.yaml`.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterator

from atwu.data.amounts import canonical_number, find_amounts
from atwu.data.dates_and_times import find_dates, find_spelled_years, find_times, iso_date
from atwu.data.value_parts import BEGIN, END, Value

_SAME_LENGTH = str.maketrans(
    {
        "\u00a0": " ",
        "\u2007": " ",
        "\u2009": " ",
        "\u202f": " ",
        "’": "'",
        "‘": "'",
        "‐": "-",
        "‑": "-",
        "–": "-",
        "−": "-",
        "：": ":",
        "．": ".",
        "，": ",",
        "％": "%",
        "＋": "+",
        "＠": "@",
        "٫": ".",
        "٬": ",",
    }
)


# The same answers and key texts are searched again and again: for facts, blanks, options and matches.
@functools.lru_cache(maxsize=4096)
def find_values(text: str) -> tuple[Value, ...]:
    """Find the values of a text, in order and without overlap.

    Words such as "first" and "eleven" are values, too (kinds `ordinal` and `number`). A date of three numbers is read day
    first unless only month first makes sense; see `readings` for the other one.
    """
    plain = _plain(text)
    values: list[Value] = []
    for find in _FINDERS:
        for value in find(plain):
            if all(value.end <= other.start or other.end <= value.start for other in values):
                values.append(value)
    return tuple(sorted(values, key=lambda value: value.start))


def readings(value: Value, text: str) -> tuple[str, ...]:
    """Return the canonical texts that a value's spelling allows, the likeliest first.

    "05/12/1986" is a day of May or of December, "1.240" is 1240 in German, and "9:30" may be in the evening.

    Args:
        value: a value of `text`.
    """
    spelling = _plain(text)[value.start : value.end]
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", value.canonical)
    if value.kind == "date" and match is not None:
        swapped = iso_date(match[1], int(match[3]), int(match[2]))
        if "/" in spelling and not spelling.startswith(match[1]) and swapped is not None:
            return value.canonical, swapped
    if value.kind == "time":
        hour, minute = value.canonical.split(":")
        if int(hour) <= 12 and not re.search("[^\\d:. ]", spelling) and not spelling.startswith("0"):
            return value.canonical, f"{int(hour) % 12 + 12:02}:{minute}"
    if value.kind in ("number", "money", "quantity", "percent"):
        digits = re.search(r"[1-9]\d{0,2}[.,]\d{3}(?![\d.,]\d)", spelling)
        if digits is not None:
            # A comma may be a decimal sign, and a point may group thousands.
            other = digits[0].replace(",", ".")
            if "." in digits[0]:
                other = digits[0].replace(".", "")
            shown = (canonical_number(digits[0]), canonical_number(digits[0].replace(",", ".")))
            for canonical in shown:
                if canonical in value.canonical.split():
                    return value.canonical, value.canonical.replace(canonical, canonical_number(other))
    return (value.canonical,)


def _plain(text: str) -> str:
    """Write digits of all scripts, spaces and signs in ASCII; every character stays in its place."""
    text = text.translate(_SAME_LENGTH)
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in text)


def _addresses(text: str) -> Iterator[Value]:
    for match in re.finditer(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", text):
        yield Value(*match.span(), "email", match[0].casefold())
    web = rf"{BEGIN}(?:https?://|www\.)[^\s<>\"”)\]]+|{BEGIN}(?:[a-z\d-]+\.)+(?:com|org|net|edu|gov|info|eu|io|de|fr|uk){END}(?:/[^\s<>\"”)\]]*)?"
    for match in re.finditer(web, text, re.IGNORECASE):
        spelling = match[0].rstrip(".,;:!?'")
        canonical = re.sub(r"^(?:https?://)?(?:www\.)?", "", spelling.casefold()).rstrip("/")
        yield Value(match.start(), match.start() + len(spelling), "url", canonical)
    for match in re.finditer(
        r"(?<![\w.])(?:\d{1,3}(?:\.\d{1,3}){3}|[\da-f]{0,4}(?::[\da-f]{0,4}){2,7})(?![\w:]|\.\d)", text, re.I
    ):
        try:
            yield Value(*match.span(), "ip", str(ipaddress.ip_address(match[0])))
        except ValueError:
            continue
    # Country, check digits and groups of four; invented accounts have wrong check digits, so they are not tested.
    for match in re.finditer(rf"{BEGIN}[A-Z]{{2}}\d\d(?: ?[A-Z\d]{{4}}){{2,7}}(?: ?[A-Z\d]{{1,3}})?{END}", text):
        if sum(char.isdigit() for char in match[0]) >= 8:
            yield Value(*match.span(), "iban", match[0].replace(" ", ""))
    # A payment card.
    for match in re.finditer(rf"{BEGIN}\d{{4}}([ -]?)\d{{4}}\1\d{{4}}\1\d{{4}}{END}", text):
        yield Value(*match.span(), "iban", re.sub("[ -]", "", match[0]))


def _versions(text: str) -> Iterator[Value]:
    for match in re.finditer(
        rf"{BEGIN}(?:v\.?(?=\d+\.\d))?(\d+(?:\.\d+){{2,}}(?:-?(?:rc|alpha|beta|a|b)\d*)?|(?<=v)\d+\.\d+){END}",
        text,
        re.I,
    ):
        # "1.240.000" is a number whose thousands are grouped.
        if not re.fullmatch(r"[1-9]\d{0,2}(?:\.\d{3})+", match[1]):
            yield Value(*match.span(), "version", match[1].casefold())


_PHONE = re.compile(
    r"(?<![\w.])(?:\+\d{1,3}[ ./-]?(?:\(\d{1,5}\)[ ./-]?)?(?:\d[ ./-])?|\(\d{1,5}\)[ ./-]?|1-(?=\d{3}-))?"
    rf"\d{{2,8}}(?:[ ./-]\d{{2,8}}){{0,5}}{END}"
)
"""Country and area, then groups of digits: "+43 1 512 77 80", "+49 (0)30 1234", "1-800-555-0199", "(02) 9876 5432"."""


def _phones(text: str) -> Iterator[Value]:
    """Find telephone numbers: seven to fifteen digits, with a country code, a leading zero, or two signs between groups."""
    for match in _PHONE.finditer(text):
        spelling = match[0]
        digits = re.sub(r"\D", "", spelling)
        grouped = re.fullmatch(r"[1-9]\d{0,2}(?: \d{3})+|[1-9]\d{0,2}(?:\.\d{3})+", spelling)
        years = re.fullmatch(r"[12]\d{3}[-/][12]\d{3}", spelling)
        marked = spelling.startswith(("+", "0", "(")) or re.search(r"\d-\d{4}$|\d-\d+-\d", spelling)
        # Fifteen digits are the most that the numbering plan of the ITU (E.164) allows.
        if 7 <= len(digits) <= 15 and marked and not grouped and not years and len(spelling) > len(digits):
            yield Value(*match.span(), "phone", digits)


_FINDERS: tuple[Callable[[str], Iterator[Value]], ...] = (
    _addresses,
    find_dates,
    find_spelled_years,
    find_times,
    _versions,
    _phones,
    find_amounts,
)
"""Kinds in the order in which they take their characters: a date is not two numbers."""
