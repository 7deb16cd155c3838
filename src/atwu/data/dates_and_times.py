"""Dates, years and times of day in a text, with their ISO 8601 forms."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from atwu.data.amounts import CHINESE_NUMBER, number_runs, read_chinese_number
from atwu.data.value_parts import BEGIN, END, VALUE_WORDS, Value, any_of, split_names

_PLAIN_I = str.maketrans("İı", "Ii")
"""A pattern that ignores case takes the dotted and the dotless letters of "NİSAN" and "Kasım" for the others."""


def _folded(month: str) -> str:
    return month.translate(_PLAIN_I).casefold()


_MONTHS = {
    _folded(name): number for number, names in enumerate(VALUE_WORDS["months"], 1) for name in split_names(names)
}
_DAY = r"(?P<day>\d{1,2})"
_YEAR = r"(?P<year>[12]\d{3}|['’]\d\d)"
_BEFORE_DATE = (
    "(?:" + "|".join(rf"(?<=\b{word} )" for word in ("am", "vom", "den", "le", "el", "il", "em", "on", "born")) + ")"
)
_LAST_SHORT_YEAR = "30"
"""Years of two digits up to this one are of this century."""


@functools.cache
def _named_month_patterns() -> tuple[re.Pattern[str], ...]:
    # A full stop behind it belongs to an abbreviation ("3 Jan. 2020"), or ends the sentence.
    month = rf"(?P<month>{any_of(_MONTHS)})(?:\.(?=[,\s]*\d))?"
    of = r"(?:\s+(?:of|de|del|di|den|the))?\s*"
    then_year = rf"(?:,?(?:\s+in)?\s+{_YEAR}{END})?"
    return _compiled(
        # 1986. május 12.; 1986 May 12; 1986-May-12
        rf"{BEGIN}{_YEAR}\.?[\s-]+{month}[\s-]+{_DAY}{END}(?!,?\s+[12]\d{{3}})",
        # 12 May 1986, 12. Mai 1986, 3rd of March, 5 de mayo de 1986, 1er mars
        rf"{BEGIN}{_DAY}(?:st|nd|rd|th|er|º|°|\.)?{of}[\s-]?{month}{END}(?:,?{of}[\s-]?{_YEAR}{END})?",
        # third of November, 1968; twenty-first of June in 1907
        rf"{BEGIN}(?P<day>[a-z-]{{5,14}}) of {month}{END}{then_year}",
        # August the fourteenth, 1968
        rf"{BEGIN}{month} (?:the )?(?P<day>[a-z-]{{5,14}}){END}{then_year}",
        # May 12, 1986; March 3rd
        rf"{BEGIN}{month}\s+(?:the\s+)?{_DAY}(?:st|nd|rd|th)?(?![\d.:,]\d){END}{then_year}",
        # May 1986, mayo de 1986
        rf"{BEGIN}{month},?{of}\s{_YEAR}{END}",
    )


@functools.cache
def _numbered_month_patterns() -> tuple[re.Pattern[str], ...]:
    return _compiled(
        # 1986-05-12
        rf"{BEGIN}{_YEAR}([-/.])(?P<month>\d{{1,2}})\2{_DAY}{END}(?!\2?\d)",
        # 12.05.1986, 05/12/1986
        rf"{BEGIN}{_DAY}([-/.]) ?(?P<month>\d{{1,2}})\2 ?{_YEAR}{END}",
        # 12.05.86, 05/12/86
        rf"{BEGIN}(?<!\d[./])(?P<day>\d\d)([./])(?P<month>\d\d)\2(?P<year>\d\d){END}(?!\2?\d)",
        # Am 3.3.75; without the word before it, it may be a version
        rf"{_BEFORE_DATE}(?P<day>\d{{1,2}})([./])(?P<month>\d{{1,2}})\2(?P<year>\d\d){END}(?!\2?\d)",
        # 5/1986
        rf"{BEGIN}(?P<month>\d{{1,2}})/{_YEAR}{END}",
        # 1986年5月12日, 5月12日, 1986년 5월 12일
        rf"{BEGIN}(?:{_YEAR}\s?[年년]\s?)?(?P<month>\d{{1,2}})\s?[月월]\s?(?:{_DAY}\s?[日号號일])?",
        # ngày 12 tháng 5 năm 1986
        rf"(?:ngày )?{_DAY} tháng (?P<month>\d{{1,2}})(?:,? năm {_YEAR})?{END}",
    )


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


_CHINESE_DATE = re.compile(rf"({CHINESE_NUMBER}{{4}})年({CHINESE_NUMBER}{{1,2}})月({CHINESE_NUMBER}{{1,3}})日")


def _chinese_dates(text: str) -> Iterator[Value]:
    for match in _CHINESE_DATE.finditer(text):
        year, month, day = (read_chinese_number(match[group]) for group in (1, 2, 3))
        canonical = iso_date(str(year), month, day)
        if canonical is not None:
            yield Value(*match.span(), "date", canonical)


def find_dates(text: str) -> Iterator[Value]:
    yield from _chinese_dates(text)
    if not any(char.isdigit() for char in text):
        return
    patterns = _numbered_month_patterns()
    # The patterns of months by name, in all languages, are slow to compile; most texts have the letters of none.
    letters = _folded(text)
    if any(name in letters for name in _MONTHS):
        patterns = (*_named_month_patterns(), *patterns)
    for pattern in patterns:
        for match in pattern.finditer(text):
            groups = {"day": None, "year": None} | match.groupdict()
            year = groups["year"]
            if year is not None:
                year = year.lstrip("'’")
            if year is not None and len(year) == 2:
                century = "20"
                if year > _LAST_SHORT_YEAR:
                    century = "19"
                year = century + year
            month = _MONTHS.get(_folded(str(groups["month"]))) or int(str(groups["month"]))
            day = None
            if groups["day"] is not None:
                day = _small_number(groups["day"]) or 0
            # Day first, as most of the world writes; month first where that alone is a date ("05/28/1986").
            canonical = iso_date(year, month, day) or iso_date(year, day, month)
            if canonical is not None:
                yield Value(*match.span(), "date", canonical)


def iso_date(year: str | None, month: int | None, day: int | None) -> str | None:
    """Return a date in ISO 8601 without what is missing; None for a month or day that does not exist."""
    if month is None or not 1 <= month <= 12 or (day is not None and not 1 <= day <= 31):
        return None
    if day is None and not year:
        return None
    if day is None:
        return f"{year}-{month:02}"
    return f"{year or '-'}-{month:02}-{day:02}"


def find_spelled_years(text: str) -> Iterator[Value]:
    """Find years before the character for a year, in digits or in Chinese ones."""
    digits = "〇一二三四五六七八九"
    for match in re.finditer(rf"{BEGIN}(?:([12]\d{{3}})\s?[年년]|([{digits}零]{{4}})年)", text):
        canonical = match[1] or "".join(str(digits.index(char.replace("零", "〇"))) for char in match[2])
        yield Value(*match.span(), "year", canonical)


_PART_OF_DAY = r"(?: in the (?P<part>morning|afternoon|evening)| at (?P<night>night))"
_CLOCK = re.compile(
    rf"{BEGIN}(?P<hour>\d{{1,2}})(?:"
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
    rf"{BEGIN}(?:(?P<minutes>half|(?:a )?quarter|[a-z-]+|\d{{1,2}})(?: minutes)?) (?P<side>past|to) "
    rf"{_HOUR}{END}{_PART_OF_DAY}?|{BEGIN}{_HOUR.replace('hour', 'full_hour')}"
    rf"{_PART_OF_DAY.replace('part', 'full_part').replace('night>', 'full_night>')}",
    re.IGNORECASE,
)
"""Half past nine, ten minutes to 3, a quarter to ten in the evening, nine in the morning."""
_NAMED_MINUTES = {"half": 30, "quarter": 15, "a quarter": 15}
_FRENCH_HOUR = re.compile(r"(?:(?<=\bà )|(?<=\bàs )|(?<=\bvers ))(?P<hour>\d{1,2})\s?h\b(?!\s?\d)", re.IGNORECASE)
"""A full hour behind a preposition; "9 h" alone may last nine hours."""
_NAMED_TIME = re.compile(r"\b(?:at|until|till|by|before|after|from|is) (?P<name>noon|midnight)\b", re.IGNORECASE)
_NAMED_HOURS = {"noon": 12, "midnight": 24}


def find_times(text: str) -> Iterator[Value]:
    for match in _CLOCK.finditer(text):
        half = (match["half"] or match["half2"] or "").casefold()
        later = half.startswith("p") or bool(match["night"]) or match["part"] in ("afternoon", "evening")
        minute = match["minute"] or match["minute2"] or match["minute3"]
        yield from _time(match, int(match["hour"]), minute, later=later, earlier=half.startswith("a"))
    for match in _EASTERN_CLOCK.finditer(text):
        minute = match["minute"]
        if match["thirty"]:
            minute = "30"
        later = match["half"] in ("午後", "下午", "오후")
        yield from _time(match, int(match["hour"]), minute, later=later, earlier=bool(match["half"]) and not later)
    for match in _FRENCH_HOUR.finditer(text):
        yield from _time(match, int(match["hour"]), None, later=False, earlier=False)
    for match in _NAMED_TIME.finditer(text):
        canonical = f"{_NAMED_HOURS[match['name'].casefold()] % 24:02}:00"
        yield Value(*match.span("name"), "time", canonical)
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
    # Neither two numbers ("nine seventeen") nor a number beside other words.
    if not runs or len(runs[0]) != 1 or runs[0][0].end != len(text):
        return None
    return runs[0][0].value
