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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypeAlias

from atwu._file_reading import read_yaml
from atwu.data.english_numbers import number_runs

ValueKind: TypeAlias = Literal[
    "date",
    "email",
    "iban",
    "ip",
    "money",
    "number",
    "ordinal",
    "percent",
    "phone",
    "quantity",
    "time",
    "url",
    "version",
    "year",
]


@dataclass(frozen=True, slots=True)
class Value:
    start: int
    end: int
    """Half-open character range."""
    kind: ValueKind
    canonical: str
    """The same for all spellings. Dates are ISO 8601, without the year "--05-12", without the day "1986-05"; times "14:30";
    money "USD 1240.5", quantities "5 mg", percentages "12.5 %", ordinals "3."."""


_WORDS: Mapping[str, Any] = read_yaml(Path(__file__).with_name("value_words.yaml"))

UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff"  # Japanese syllables
    "\u3400-\u9fff\uf900-\ufaff"  # Chinese characters
)
"""Characters of scripts without spaces between words, for a character class."""
_GLUED = rf"[^\W_{UNSPACED}\uac00-\ud7af]"
"""A letter or digit that would continue a value; a Korean particle or Chinese character after a number does not."""
_BEGIN, _END = rf"(?<!{_GLUED})", rf"(?!{_GLUED})"

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


def find_values(text: str) -> tuple[Value, ...]:
    """Find the values of a text, in order and without overlap.

    Words such as "first" and "eleven" are values, too (kinds `ordinal` and `number`). A date of three numbers is read day
    first unless only month first makes sense; see `readings` for the other one.
    """
    return _find_values(text)


def readings(value: Value, text: str) -> tuple[str, ...]:
    """Return the canonical texts that a value's spelling allows, the likeliest first.

    "05/12/1986" is a day of May or of December, "1.240" is 1240 in German, and "9:30" may be in the evening.

    Args:
        value: a value of `text`.
    """
    spelling = _plain(text)[value.start : value.end]
    if value.kind == "date" and (match := re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", value.canonical)):
        swapped = _date(match[1], int(match[3]), int(match[2]))
        if "/" in spelling and not spelling.startswith(match[1]) and swapped is not None:
            return value.canonical, swapped
    if value.kind == "time":
        hour, minute = value.canonical.split(":")
        if int(hour) <= 12 and not re.search("[^\\d:. ]", spelling) and not spelling.startswith("0"):
            return value.canonical, f"{int(hour) % 12 + 12:02}:{minute}"
    if value.kind in ("number", "money", "quantity", "percent"):
        digits = re.search(r"[1-9]\d{0,2}[.,]\d{3}(?![\d.,]\d)", spelling)
        if digits is not None:
            other = digits[0].replace(".", "") if "." in digits[0] else digits[0].replace(",", ".")
            shown = (_decimal(digits[0]), _decimal(digits[0].replace(",", ".")))
            for canonical in shown:
                if canonical in value.canonical.split():
                    return value.canonical, value.canonical.replace(canonical, _decimal(other))
    return (value.canonical,)


@functools.lru_cache(maxsize=4096)
def _find_values(text: str) -> tuple[Value, ...]:
    plain = _plain(text)
    values: list[Value] = []
    for find in _FINDERS:
        for value in find(plain):
            if all(value.end <= other.start or other.end <= value.start for other in values):
                values.append(value)
    return tuple(sorted(values, key=lambda value: value.start))


def _plain(text: str) -> str:
    """Write digits of all scripts, spaces and signs in ASCII; every character stays in its place."""
    text = text.translate(_SAME_LENGTH)
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in text)


def _decimal(text: str) -> str:
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
    return _shortest(Decimal(text))


def _shortest(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def _alternatives(names: Mapping[str, object] | list[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


# Addresses


def _addresses(text: str) -> Iterator[Value]:
    for match in re.finditer(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", text):
        yield Value(*match.span(), "email", match[0].casefold())
    web = rf"{_BEGIN}(?:https?://|www\.)[^\s<>\"”)\]]+|{_BEGIN}(?:[a-z\d-]+\.)+(?:com|org|net|edu|gov|info|eu|io|de|fr|uk){_END}(?:/[^\s<>\"”)\]]*)?"
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
    for match in re.finditer(rf"{_BEGIN}[A-Z]{{2}}\d\d(?: ?[A-Z\d]{{4}}){{2,7}}(?: ?[A-Z\d]{{1,3}})?{_END}", text):
        if sum(char.isdigit() for char in match[0]) >= 8:
            yield Value(*match.span(), "iban", match[0].replace(" ", ""))


# Dates

_MONTHS = {
    name: number
    for number, names in enumerate(_WORDS["months"], 1)
    for name in (text.casefold() for text in _listed(names))
}
_DAY = r"(?P<day>\d{1,2})"
_YEAR = r"(?P<year>[12]\d{3})"


@functools.cache
def _date_patterns() -> tuple[re.Pattern[str], ...]:
    month = rf"(?P<month>{_alternatives(_MONTHS)})\.?"
    of = r"(?:\s+(?:of|de|del|di|den|the))?\s*"
    patterns = (
        # 1986. május 12.; 1986 May 12; 1986-May-12
        rf"{_BEGIN}{_YEAR}\.?[\s-]+{month}[\s-]+{_DAY}{_END}(?!,?\s+[12]\d{{3}})",
        # 12 May 1986, 12. Mai 1986, 3rd of March, 5 de mayo de 1986, 1er mars
        rf"{_BEGIN}{_DAY}(?:st|nd|rd|th|er|º|°|\.)?{of}[\s-]?{month}{_END}(?:,?{of}[\s-]?{_YEAR}{_END})?",
        # third of November, 1968
        rf"{_BEGIN}(?P<day>[a-z-]{{5,14}}) of {month}{_END}(?:,?\s+{_YEAR}{_END})?",
        # May 12, 1986; March 3rd
        rf"{_BEGIN}{month}\s+(?:the\s+)?{_DAY}(?:st|nd|rd|th)?(?![\d.:,]\d){_END}(?:,?\s+{_YEAR}{_END})?",
        # May 1986, mayo de 1986
        rf"{_BEGIN}{month},?{of}\s{_YEAR}{_END}",
        # 1986-05-12
        rf"{_BEGIN}{_YEAR}([-/.])(?P<month>\d{{1,2}})\2{_DAY}{_END}(?!\2?\d)",
        # 12.05.1986, 05/12/1986
        rf"{_BEGIN}{_DAY}([-/.]) ?(?P<month>\d{{1,2}})\2 ?{_YEAR}{_END}",
        # 5/1986
        rf"{_BEGIN}(?P<month>\d{{1,2}})/{_YEAR}{_END}",
        # 1986年5月12日, 5月12日, 1986년 5월 12일
        rf"{_BEGIN}(?:{_YEAR}\s?[年년]\s?)?(?P<month>\d{{1,2}})\s?[月월]\s?(?:{_DAY}\s?[日号號일])?",
        # ngày 12 tháng 5 năm 1986
        rf"(?:ngày )?{_DAY} tháng (?P<month>\d{{1,2}})(?:,? năm {_YEAR})?{_END}",
    )
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


def _dates(text: str) -> Iterator[Value]:
    if not any(char.isdigit() for char in text):
        return
    for pattern in _date_patterns():
        for match in pattern.finditer(text):
            groups = {"day": None, "year": None} | match.groupdict()
            month = _MONTHS.get(str(groups["month"]).casefold()) or int(str(groups["month"]))
            day = None if groups["day"] is None else _small_number(groups["day"]) or 0
            canonical = _date(groups["year"], month, day) or _date(groups["year"], day, month)
            if canonical is not None:
                yield Value(*match.span(), "date", canonical)


def _date(year: str | None, month: int | None, day: int | None) -> str | None:
    """Return a date in ISO 8601 without what is missing; None for a month or day that does not exist."""
    if month is None or not 1 <= month <= 12 or (day is not None and not 1 <= day <= 31):
        return None
    if day is None:
        return f"{year}-{month:02}" if year else None
    return f"{year or '-'}-{month:02}-{day:02}"


def _spelled_years(text: str) -> Iterator[Value]:
    """Find years before the character for a year, in digits or in Chinese ones."""
    digits = "〇一二三四五六七八九"
    for match in re.finditer(rf"{_BEGIN}(?:([12]\d{{3}})\s?[年년]|([{digits}零]{{4}})年)", text):
        canonical = match[1] or "".join(str(digits.index(char.replace("零", "〇"))) for char in match[2])
        yield Value(*match.span(), "year", canonical)


# Times

_PART_OF_DAY = r"(?: in the (?P<part>morning|afternoon|evening)| at (?P<night>night))"
_CLOCK = re.compile(
    rf"{_BEGIN}(?P<hour>\d{{1,2}})(?:"
    r"[:.](?P<minute>[0-5]\d)(?::[0-5]\d)?\s?(?P<half>[ap](?:m\b|\.m\b\.?)|Uhr\b)|"
    rf":(?P<minute2>[0-5]\d)(?::[0-5]\d)?(?![\d:]){_PART_OF_DAY}?|"
    r"\s?(?P<half2>[ap](?:m\b|\.m\b\.?)|o'clock\b)|"
    r"\s?(?:Uhr\b|h(?=\s?\d\d\b))\s?(?P<minute3>[0-5]\d\b)?)",
    re.IGNORECASE,
)
"""14:30, 2:30 pm, 2 p.m., 14 Uhr 30, 14.30 Uhr, 14h30."""
_EASTERN_CLOCK = re.compile(
    r"(?P<half>午前|午後|上午|下午|오전|오후)?\s?(?P<hour>\d{1,2})\s?[時时點点시]\s?(?:(?P<minute>\d{1,2})\s?[分분]|(?P<thirty>半|반))?"
)
_HOUR = r"(?P<hour>[a-z]+|\d{1,2})"
_SPOKEN_CLOCK = re.compile(
    rf"{_BEGIN}(?:(?P<minutes>half|(?:a )?quarter|[a-z-]+|\d{{1,2}})(?: minutes)?) (?P<side>past|to) "
    rf"{_HOUR}{_END}{_PART_OF_DAY}?|{_BEGIN}{_HOUR.replace('hour', 'full_hour')}"
    rf"{_PART_OF_DAY.replace('part', 'full_part').replace('night>', 'full_night>')}",
    re.IGNORECASE,
)
"""Half past nine, ten minutes to 3, a quarter to ten in the evening, nine in the morning."""
_NAMED_MINUTES = {"half": 30, "quarter": 15, "a quarter": 15}
_NAMED_HOURS = {"noon": 12, "midnight": 24}


def _times(text: str) -> Iterator[Value]:
    for match in _CLOCK.finditer(text):
        half = (match["half"] or match["half2"] or "").casefold()
        later = half.startswith("p") or bool(match["night"]) or match["part"] in ("afternoon", "evening")
        minute = match["minute"] or match["minute2"] or match["minute3"]
        yield from _time(match, int(match["hour"]), minute, later=later, earlier=half.startswith("a"))
    for match in _EASTERN_CLOCK.finditer(text):
        minute = "30" if match["thirty"] else match["minute"]
        later = match["half"] in ("午後", "下午", "오후")
        yield from _time(match, int(match["hour"]), minute, later=later, earlier=bool(match["half"]) and not later)
    for match in _SPOKEN_CLOCK.finditer(text):
        yield from _spoken_time(match)


def _spoken_time(match: re.Match[str]) -> Iterator[Value]:
    name = (match["hour"] or match["full_hour"]).casefold()
    hour = _NAMED_HOURS.get(name) or _small_number(name)
    minutes = 0
    if match["minutes"] is not None:
        minutes = _NAMED_MINUTES.get(match["minutes"].casefold()) or _small_number(match["minutes"]) or 60
    if not hour or minutes >= 60 or hour > 24:
        return
    if (match["side"] or "").casefold() == "to":
        minutes, hour = 60 - minutes, hour - 1
    part = (match["part"] or match["full_part"] or "").casefold()
    later = part in ("afternoon", "evening") or bool(match["night"] or match["full_night"])
    yield from _time(match, hour, str(minutes), later=later, earlier=False)


def _time(match: re.Match[str], hour: int, minute: str | None, *, later: bool, earlier: bool) -> Iterator[Value]:
    if later and hour < 12:
        hour += 12
    if earlier and hour == 12:
        hour = 0
    if hour <= 24 and int(minute or 0) < 60:
        end = match.start() + len(match[0].rstrip())
        yield Value(match.start(), end, "time", f"{hour:02}:{int(minute or 0):02}")


def _small_number(text: str) -> int | None:
    if text.isdigit():
        return int(text)
    runs = number_runs(text)
    return runs[0][0].value if runs and len(runs[0]) == 1 and len(text) == runs[0][0].end else None


# Versions and telephone numbers


def _versions(text: str) -> Iterator[Value]:
    for match in re.finditer(
        rf"{_BEGIN}(?:v\.?(?=\d+\.\d))?(\d+(?:\.\d+){{2,}}(?:-?(?:rc|alpha|beta|a|b)\d*)?|(?<=v)\d+\.\d+){_END}",
        text,
        re.I,
    ):
        if not re.fullmatch(r"[1-9]\d{0,2}(?:\.\d{3})+", match[1]):  # 1.240.000
            yield Value(*match.span(), "version", match[1].casefold())


_PHONE = re.compile(
    r"(?<![\w.])(?:\+\d{1,3}[ ./-]?)?(?:\(\d{1,5}\)[ ./-]?)?"  # country and area
    rf"\d{{2,5}}(?:[ ./-]\d{{2,5}}){{0,5}}{_END}"
)


def _phones(text: str) -> Iterator[Value]:
    """Find telephone numbers: seven to fifteen digits, with a country code, a leading zero, or two signs between groups."""
    for match in _PHONE.finditer(text):
        spelling = match[0]
        digits = re.sub(r"\D", "", spelling)
        grouped = re.fullmatch(r"[1-9]\d{0,2}(?: \d{3})+|[1-9]\d{0,2}(?:\.\d{3})+", spelling)
        years = re.fullmatch(r"[12]\d{3}[-/][12]\d{3}", spelling)
        marked = spelling.startswith(("+", "0", "(")) or re.search(r"\d-\d{4}$|\d-\d+-\d", spelling)
        if 7 <= len(digits) <= 15 and marked and not grouped and not years and len(spelling) > len(digits):
            yield Value(*match.span(), "phone", digits)


# Numbers, and what stands beside them

_DIGITS = (
    r"(?:[1-9]\d{0,2}(?:,\d{2,3})*,\d{3}(?:\.\d+)?"  # 1,240.50 and 12,34,567
    r"|[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?"  # 1.240,50
    r"|[1-9]\d{0,2}(?:[ ']\d{3})+(?:[.,]\d+)?"  # 1 240,50 and 1'240.50
    r"|\d+(?:[.,]\d+)?)"
)
_NUMBER = re.compile(rf"(?<![\w]\.)(?<!\d,)(?:(?<!\S)-)?{_BEGIN}{_DIGITS}(?![.,]?\d)")


def _table(name: str) -> dict[str, str]:
    """Return spelling -> key; names of one or two letters in their case ("MB", "mb"), others in lower case."""
    return {_as_listed(word): key for key, words in _WORDS[name].items() for word in _listed(words)}


def _as_listed(word: str) -> str:
    return word if len(word) <= 2 and word.isalpha() else word.casefold()


_SCALES, _CURRENCIES, _UNITS = _table("scales"), _table("currencies"), _table("units")
_PERCENT = dict.fromkeys(_listed(_WORDS["percent"]), "%")
_TABLES = {"scales": _SCALES, "currencies": _CURRENCIES, "units": _UNITS, "percent": _PERCENT}
_FOREIGN = {
    word.replace("_", " "): number
    for words in _WORDS["numbers"].values()
    for number, word in enumerate(words.split(), 2)
    if word != "-"
}
_PRONOUN = re.compile(
    r"(?:\b(?:no|every|any|some|each|this|that|the|which) one|\bone (?:of|another|day))$", re.IGNORECASE
)
_ORDINAL_ENDING = re.compile(rf"(?:st|nd|rd|th|º|ª|er|ère|e|ème|te|ter|ten){_END}")


@functools.cache
def _beside(table: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of a table's words after a number, and before it."""
    names = _alternatives(_TABLES[table])
    return re.compile(rf"[ -]?({names}){_END}", re.IGNORECASE), re.compile(rf"{_BEGIN}({names}) ?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Counted:
    start: int
    end: int
    number: Decimal
    ordinal: bool = False
    words: bool = False


def _numbers(text: str) -> Iterator[Value]:
    counted = [*_in_digits(text), *_in_words(text)]
    for item in counted:
        yield _with_neighbours(text, item)


def _in_digits(text: str) -> Iterator[_Counted]:
    for match in _NUMBER.finditer(text):
        sign = "-" if match[0].startswith("-") else ""
        number = Decimal(sign + _decimal(match[0].removeprefix("-")))
        ending = _ORDINAL_ENDING.match(text, match.end())
        if ending is not None and number == int(number) and match[0].isdigit():
            yield _Counted(match.start(), ending.end(), number, ordinal=True)
        elif not re.match(_GLUED, text[match.end() : match.end() + 1]) or _suffix_follows(text, match.end()):
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
    return re.compile(rf"{_BEGIN}(?:{_alternatives(_FOREIGN)}){_END}", re.IGNORECASE)


def _after(text: str, position: int, table: str) -> tuple[int, str] | None:
    """Return the end and the key of a table's word behind a number; None without one."""
    match = _beside(table)[0].match(text, position)
    key = _TABLES[table].get(_as_listed(match[1])) if match else None
    return (match.end(), key) if match and key else None


def _with_neighbours(text: str, item: _Counted) -> Value:
    """Return the value of a number together with its scale, currency, unit or percent sign."""
    start, end, number = item.start, item.end, item.number
    if item.ordinal:
        return Value(start, end, "ordinal", f"{_shortest(number)}.")
    if (scale := _after(text, end, "scales")) is not None:
        end, number = scale[0], number * int(scale[1])
    canonical = _shortest(number)
    before = _beside("currencies")[1].search(text, max(start - 8, 0), start)
    currency = _CURRENCIES.get(_as_listed(before[1])) if before else None
    if before and currency:
        return Value(before.start(), end, "money", f"{currency} {canonical}")
    kinds: tuple[tuple[str, ValueKind], ...] = (("percent", "percent"), ("currencies", "money"), ("units", "quantity"))
    for table, kind in kinds:
        if (neighbour := _after(text, end, table)) is not None:
            shown = f"{neighbour[1]} {canonical}" if kind == "money" else f"{canonical} {neighbour[1]}"
            return Value(start, neighbour[0], kind, shown)
    year = (len(canonical) == 4 and canonical[:2] in ("19", "20")) or re.fullmatch(r"1\d{3}", canonical)
    plain = text[item.start : item.end].isdigit() or item.words
    return Value(start, end, "year" if year and plain and end == item.end else "number", canonical)


_FINDERS: tuple[Callable[[str], Iterator[Value]], ...] = (
    _addresses,
    _dates,
    _spelled_years,
    _times,
    _versions,
    _phones,
    _numbers,
)
"""Kinds in the order in which they take their characters: a date is not two numbers."""
