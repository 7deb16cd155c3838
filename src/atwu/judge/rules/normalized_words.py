"""Normalize a text to comparable words: case, accents, punctuation, possessives, spelling, numbers and word endings.

Numbers, dates, clock times and amounts become digits, so that "3rd of March" and "1961-03-03" can be compared. English only; a
date of three numbers is read day first unless only month first makes sense.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from atwu._extras import without_init
from atwu._file_reading import read_yaml
from atwu.data.amounts import number_runs


def split_entries(text: str) -> tuple[str, ...]:
    return tuple(text.split())


MONTHS = split_entries("january february march april may june july august september october november december")

_MONTH = "|".join(month[:3] for month in MONTHS)
# "Mar", "May", "Jun" and "Jul" are months only beside a number; alone, the first two are names or verbs.
_ABBREVIATED = re.compile(
    rf"\b(?:(?<=\d )({_MONTH}|sept)\b\.?|({_MONTH}|sept)\b\.?(?= \d)|(jan|feb|apr|aug|sept|oct|nov|dec)\b\.?)", re.I
)
# 1961-03-03
_ISO = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})\b")
# 3.3.1961 and 3/3/1961
_THREE_NUMBERS = re.compile(r"\b(\d{1,2})([./-])(\d{1,2})\2(\d{4})\b")
# 3/1961
_MONTH_AND_YEAR = re.compile(r"\b(\d{1,2})/(\d{4})\b")
# 6.30 p.m. and 18:30
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))?\s*([ap])\.?m\b\.?|\b(\d{1,2}):(\d\d)\b", re.I)
# half past 6, 5 minutes to noon
_PAST = re.compile(
    r"\b(?:a )?(?:(half|quarter|\d{1,2})(?: minutes)? (past)|(quarter|\d{1,2}(?= minutes))(?: minutes)? (to)) "
    r"(\d{1,2}|noon|midnight)\b",
    re.I,
)
# 6 in the evening, at 6 30
_PART_OF_DAY = re.compile(
    r"\b(\d{1,2})(?:[:. ](\d\d))? (?:in the (morning|evening|afternoon)|at (night))\b|\bat (\d{1,2}) ([0-5]\d)(?=[.!]?$)",
    re.I,
)
# 1,000,000 and 1 000 000
_GROUPS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:,\d{3})+|(?:[  ]\d{3})+)(?![\d])")
# 2 and a half, 2 ½
_HALF = re.compile(r"\b(\d+) and a half\b|\b(\d+)\s?½", re.I)
_ORDINAL_ENDING = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b", re.I)
# 2.50
_DECIMALS = re.compile(r"\b(\d+)\.(\d*?)0+\b(?!\.\d)")
# 3k, 3 mn, 3bn, 3M
_SUFFIX = re.compile(r"(?<=\d)\s?(?:k|mn|mio|mln|bn)\b|(?<=\d)M\b")
_SUFFIXES = {"k": 1000, "bn": 10**9}
"""All others are millions; a small m is metres."""
# "3 1000", which "3 thousand" and "3k" have become
_TIMES = re.compile(r"\b(\d+(?:\.\d+)?) (100|1000|1000000|1000000000)\b(?![\d,])")
_SIGNS = {"€": "euro", "$": "dollar", "£": "pound", "¥": "yen"}
_UNITS = {
    "m": "metre", "km": "kilometre", "cm": "centimetre", "mm": "millimetre", "kg": "kilogram", "g": "gram", "l": "litre",
    "h": "hour", "hrs": "hours", "min": "minute", "mins": "minutes", "yrs": "years", "ha": "hectare", "ft": "foot",
    "mi": "mile", "lbs": "pound", "km/h": "kilometre an hour", "kph": "kilometre an hour", "mph": "mile an hour",
}  # fmt: skip
_UNIT = re.compile(rf"(?<=\d)\s?({'|'.join(sorted(_UNITS, key=len, reverse=True))})\b")


def with_digits(text: str) -> str:
    """Rewrite numbers as digits, dates as `3 march 1961`, clock times as `18.3` (18:30), `€5` as `5 euro`; the rest is kept."""
    text = _PAST.sub(_past, _with_number_words_as_digits(text))
    text = re.sub(r"\bthrice\b", "3 times", re.sub(r"\btwice\b", "2 times", text, flags=re.I), flags=re.I)
    if any(char.isdigit() for char in text):
        # Groups, halves and suffixes first, since dates, times and amounts below are read from plain numbers.
        text = _ORDINAL_ENDING.sub(r"\1", _GROUPS.sub(lambda match: re.sub(r"\D", "", match[0]), text))
        text = _HALF.sub(lambda match: f"{match[1] or match[2]}.5", text)
        text = _SUFFIX.sub(lambda match: f" {_SUFFIXES.get(match[0].strip().lower(), 10**6)}", text)
        text = _TIMES.sub(_times, text)
        text = _ISO.sub(lambda match: _date(match[3], match[2], match[1], match[0]), text)
        text = _THREE_NUMBERS.sub(_day_first, text)
        text = _MONTH_AND_YEAR.sub(lambda match: _date("", match[1], match[2], match[0]), text)
        text = _CLOCK.sub(_clock, _PART_OF_DAY.sub(_part_of_day, text))
        text = re.sub(r"[€$£¥]", lambda match: f" {_SIGNS[match[0]]} ", text)
        text = re.sub(r"\s?(?:%|per cent\b)", " percent", text)
        text = re.sub(r"°\s?[Cc]\b", " degrees celsius", text).replace("°", " degrees ")
        text = _DECIMALS.sub(lambda match: f"{match[1]}.{match[2]}".rstrip("."), text)
        text = _UNIT.sub(lambda match: f" {_UNITS[match[1]]}", text)
    return _ABBREVIATED.sub(_month, text)


def _with_number_words_as_digits(text: str) -> str:
    """Replace each sequence of number words by its numbers in digits, with blanks between them."""
    pieces, position = [], 0
    for run in number_runs(text):
        pieces += [text[position : run[0].start], " ".join(str(number.value) for number in run)]
        position = run[-1].end
    return "".join(pieces) + text[position:]


def _times(match: re.Match[str]) -> str:
    if match[2] == "100" and "." not in match[1]:
        return match[0]
    return f"{float(match[1]) * int(match[2]):.10g}"


def _date(day: str, month: str, year: str, otherwise: str) -> str:
    if not 1 <= int(month) <= 12:
        return otherwise
    return f"{day.lstrip('0')} {MONTHS[int(month) - 1]} {year}".strip()


def _day_first(match: re.Match[str]) -> str:
    day, month = match[1], match[3]
    if int(month) > 12:
        day, month = month, day
    return _date(day, month, match[4], match[0])


def _month(match: re.Match[str]) -> str:
    start = next(group for group in match.groups() if group).lower()[:3]
    return next(month for month in MONTHS if month.startswith(start))


def _clock(match: re.Match[str]) -> str:
    hour, minute = int(match[1] or match[4]), match[2] or match[5] or "00"
    if match[3]:
        hour %= 12
        if match[3].lower() == "p":
            hour += 12
    return f"{hour}.{minute}"


def _past(match: re.Match[str]) -> str:
    hour = {"noon": 12, "midnight": 24}.get(match[5].lower()) or int(match[5])
    part = (match[1] or match[3]).lower()
    minutes = {"half": 30, "quarter": 15}.get(part) or int(part)
    if match[4]:  # "to" the hour
        return f"{hour - 1}.{60 - minutes:02}"
    return f"{hour}.{minutes:02}"


def _part_of_day(match: re.Match[str]) -> str:
    hour = int(match[1] or match[5])
    if hour < 12 and (match[4] or (match[3] or "").lower() in ("evening", "afternoon")):
        hour += 12
    return f"{hour}.{match[2] or match[6] or '00'}"


# '87
_SHORT_YEAR = re.compile(r"'(\d\d)\b")
_AMOUNT = re.compile(r"\b(\d+(?:\.\d+)?) ?-?([a-z]+)\b\.?", re.I)
# These follow a number and begin like a unit: "in" is not short for "inch".
_NO_UNITS = split_entries("a an in at on of or to by the")
# Only units of one line can be compared. "centurie" and "inche" are what the plural without its s leaves.
_SIZES = (
    {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800},
    {"month": 1, "year": 12, "decade": 120, "century": 1200, "centurie": 1200},
    {"millimetre": 1, "centimetre": 10, "metre": 1000, "meter": 1000, "kilometre": 10**6},
    {"inch": 1, "inche": 1, "foot": 12, "feet": 12, "yard": 36},
    {"gram": 1, "kilogram": 1000, "tonne": 10**6},
)


def match_number_format(text: str, reference: str) -> str:
    """Rewrite an answer in the units of the reference: "'87" as 1987, "1.5 hours" as "90 minutes", "3 s." as shillings."""
    years = {year[2:]: year for year in re.findall(r"\b[12]\d{3}\b", reference)}
    text = _SHORT_YEAR.sub(lambda match: years.get(match[1], match[0]), text.replace("’", "'"))
    amounts = [(match[1], match[2]) for match in _AMOUNT.finditer(with_digits(reference).lower())]
    if not amounts:
        return text

    def alike(match: re.Match[str]) -> str:
        value, unit = match[1], match[2].lower()
        for number, other in amounts:
            short = len(unit) <= 3 and unit not in _NO_UNITS and len(other) > 4 and other.startswith(unit)
            one, same = unit.removesuffix("s"), other.removesuffix("s")
            sizes = next((sizes for sizes in _SIZES if one in sizes and same in sizes and one != same), None)
            equal = sizes is not None and float(value) * sizes[one] == float(number) * sizes[same]
            if equal or (short and number == value):
                return f"{number} {other}"
        return match[0]

    told = with_digits(text)
    changed = _AMOUNT.sub(alike, told)
    if changed == told:
        return text
    return changed


ARTICLES = frozenset(split_entries("a an the"))
PASSED_OVER = ARTICLES | {"and"}
_TABLES: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
FUNCTION_WORDS = ARTICLES | frozenset(split_entries(_TABLES["function_words"]))
_ALIASES: dict[str, str] = _TABLES["aliases"]
_IRREGULAR = {form: entry.split()[0] for entry in _TABLES["forms"] for form in entry.split()[1:]}
_QUOTES = str.maketrans({"’": "'", "‘": "'", "`": "'", "´": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'})
_NOT = re.compile(r"n't\b", re.I)
_CLITIC = re.compile(r"(?<=\w)'(?:s|d|ll|ve|re|m)\b|(?<=s)'(?=\s|$)", re.I)
_WORD = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+(?:'[^\W\d_]+)*")
_ENDING = re.compile(r"(?<=....)(?:ist|ism|ian|i|ship|hood)$|(?<=...)(?:er|or)$")
# "St" before a name is a saint, behind one a street.
_SAINT = re.compile(r"\bSt\b\.?(?=\s[A-Z])")
_STREET = re.compile(r"(?<=[a-z] )St\b\.?(?!\s[A-Z])")
_BREAK = re.compile(r"[,;:!?/()|]|\.\.\.|\s[-–—]+\s")
_FULL_STOP = re.compile(r"\.\W*\s")
# A full stop behind these ends no sentence.
_TITLES_AND_INITIALS = re.compile(r"\b(?:[A-Za-z]|Mrs?|Ms|Dr|St|Prof|Univ|No|MS|Ln|Rd)$")


class Word(NamedTuple):
    text: str
    """Text without case, accents and apostrophes."""
    stem: str
    capital: bool
    function: bool
    """Whether it is a function word (article, preposition, pronoun, auxiliary), which carries no fact by itself."""
    gap: str
    """Punctuation between the previous word and this one: '.' ends a sentence, ',' is any weaker break."""
    quoted: bool
    glued: bool
    """Whether it follows the previous word without a blank, as in addresses and number plates."""

    @property
    def number(self) -> bool:
        """Whether it is written in digits (after `with_digits`)."""
        return self.text[0].isdigit()


@lru_cache(maxsize=65536)
def words_of(text: str) -> tuple[Word, ...]:
    text = _STREET.sub("Street", _SAINT.sub("Saint", text))
    # Numbers are read first: decomposed, "2 ½" would be "2 1⁄2".
    text = with_digits(unicodedata.normalize("NFC", text).translate(_QUOTES))
    # Accents are characters of their own in this form.
    decomposed = unicodedata.normalize("NFKD", text)
    text = "".join(char for char in decomposed if not unicodedata.combining(char))
    text = _CLITIC.sub("", _NOT.sub(" not", text))
    words: list[Word] = []
    end, quotes = 0, 0
    for match in _WORD.finditer(text):
        between = text[end : match.start()]
        quotes += between.count('"')
        end = match.end()
        surface = match[0].replace("'", "")
        written = surface.lower()
        plain = _ALIASES.get(written) or _ALIASES.get(written.removesuffix("s"), written)
        month = False
        if written == "may":
            # A month inside a sentence or beside a number; at the beginning of a sentence it is most often the verb.
            before, behind = text[max(0, match.start() - 3) : match.start()], text[end : end + 3]
            beside_number = re.search(r"\d\s*$", before) or re.match(r",?\s*\d", behind)
            month = bool((surface == "May" and words) or beside_number)
        words.append(
            Word(
                text=plain,
                stem=_stem(plain),
                capital=surface[0].isupper(),
                function=written in FUNCTION_WORDS and not month,
                gap=_gap(between, text[max(0, match.start() - len(between) - 6) : match.start() - len(between)]),
                quoted=quotes % 2 == 1,
                glued=bool(words) and not any(char.isspace() or char in ",;:!?" for char in between),
            )
        )
    return tuple(words)


@lru_cache(maxsize=16384)
def stems_of(text: str) -> frozenset[str]:
    return frozenset(word.stem for word in words_of(text) if not word.function)


def _gap(between: str, before: str) -> str:
    if any(char in between for char in "!?\n"):
        return "."
    if _FULL_STOP.search(between) and not _TITLES_AND_INITIALS.search(before):
        return "."
    if _BREAK.search(between.replace('"', "")):
        return ","
    return ""


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    if word[0].isdigit() or len(word) < 3:
        return word
    # British spelling as American: "colour" and "color".
    word = re.sub(r"(?<=...)our(?=s?$|ed$|ing$)", "or", _IRREGULAR.get(word, word))
    # The Porter stemmer keeps "violinist", "painter" and "historian" apart from "violin", "paint" and "history".
    return _ENDING.sub("", str(_porter().stem(word)))


@lru_cache(maxsize=1)
def _porter() -> Any:
    """The stemmer that `rouge_score` uses; all of nltk would take seconds to import."""
    with without_init("nltk", "stem"):
        return import_module("nltk.stem.porter").PorterStemmer()


def find_run(sought: Sequence[str], words: Sequence[Word], *, exact: bool = False) -> tuple[int, int] | None:
    """Return the first range of words that, joined, equals `sought`: "great-aunts" is "great aunts", "44-17" is "4417".

    Args:
        sought: stems, or whole words when `exact`, without the words passed over.
        words: where to look; articles and "and" between them are passed over.
        exact: endings count.
    """
    target = "".join(sought)
    stems = [word.text if exact else word.stem for word in words]
    if len(sought) > 1:
        stems = ["" if word.text in PASSED_OVER else stem for word, stem in zip(words, stems, strict=True)]
    for start, stem in enumerate(stems):
        if not stem or not target.startswith(stem):
            continue
        end, joined = start + 1, stem
        while len(joined) < len(target) and end < len(stems) and target.startswith(joined):
            joined += stems[end]
            end += 1
        if joined == target:
            return start, end
    return None
