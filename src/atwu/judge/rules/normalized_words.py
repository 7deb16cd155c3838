"""Normalize a text to comparable words: case, accents, punctuation, possessives, spelling, numbers and word endings."""

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
from atwu.judge.rules.numerals import split_entries, with_digits

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
_SAINT = re.compile(r"\bSt\b\.?(?=\s[A-Z])")
_STREET = re.compile(r"(?<=[a-z] )St\b\.?(?!\s[A-Z])")
_BREAK = re.compile(r"[,;:!?/()|]|\.\.\.|\s[-–—]+\s")
_FULL_STOP = re.compile(r"\.\W*\s")
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
    text = _fold(text)
    found: list[Word] = []
    end, quotes = 0, 0
    for match in _WORD.finditer(text):
        between = text[end : match.start()]
        quotes += between.count('"')
        end = match.end()
        surface = match[0].replace("'", "")
        written = surface.lower()
        plain = _ALIASES.get(written) or _ALIASES.get(written.removesuffix("s"), written)
        month = written == "may" and ((surface == "May" and found) or _beside_a_number(text, match.start(), end))
        found.append(
            Word(
                text=plain,
                stem=_stem(plain),
                capital=surface[0].isupper(),
                function=written in FUNCTION_WORDS and not month,
                gap=_gap(between, text[max(0, match.start() - len(between) - 6) : match.start() - len(between)]),
                quoted=quotes % 2 == 1,
                glued=bool(found) and not any(char.isspace() or char in ",;:!?" for char in between),
            )
        )
    return tuple(found)


@lru_cache(maxsize=16384)
def stems_of(text: str) -> frozenset[str]:
    return frozenset(word.stem for word in words_of(text) if not word.function)


def _fold(text: str) -> str:
    text = _STREET.sub("Street", _SAINT.sub("Saint", text))
    text = with_digits(unicodedata.normalize("NFC", text).translate(_QUOTES))
    decomposed = unicodedata.normalize("NFKD", text)
    text = "".join(char for char in decomposed if not unicodedata.combining(char))
    return _CLITIC.sub("", _NOT.sub(" not", text))


def _beside_a_number(text: str, start: int, end: int) -> bool:
    return bool(re.search(r"\d\s*$", text[max(0, start - 3) : start]) or re.match(r",?\s*\d", text[end : end + 3]))


def _gap(between: str, before: str) -> str:
    if any(char in between for char in "!?\n"):
        return "."
    if _FULL_STOP.search(between) and not _TITLES_AND_INITIALS.search(before):
        return "."
    return "," if _BREAK.search(between.replace('"', "")) else ""


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    if word[0].isdigit() or len(word) < 3:
        return word
    word = re.sub(r"(?<=...)our(?=s?$|ed$|ing$)", "or", _IRREGULAR.get(word, word))
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
    stems = [
        "" if word.text in PASSED_OVER and len(sought) > 1 else word.text if exact else word.stem for word in words
    ]
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
