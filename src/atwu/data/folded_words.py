"""Words of a text in comparable form: without case, accents, invisible characters, possessives and plural endings.

Every word keeps its character range in the original text. A character of a script without spaces between words (Chinese,
Japanese, Thai, Lao, Khmer, Burmese) is a word of its own, so a search for a run of words is a search for a substring there.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import regex

from atwu._file_reading import read_yaml

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_INVISIBLE = r"\u00ad\u200b-\u200f\u2060\ufeff"
"""Soft hyphen, zero-width characters and marks of direction; they do not end a word."""
_WORD = regex.compile(
    rf"(?V1)(?P<unspaced>[{_UNSPACED}])[\p{{M}}{_INVISIBLE}]*"
    rf"|[[\p{{L}}\p{{N}}]--[{_UNSPACED}]](?:[[\p{{L}}\p{{N}}]--[{_UNSPACED}]]|[\p{{M}}{_INVISIBLE}])*"
)
_APOSTROPHES = "'’‘ʼ＇`´"
_CLITICS = frozenset(("s", "m", "ll", "re", "ve", "d"))
"""What follows an apostrophe and is no word of its own: "Linz's", "he'll"."""
_DROPPED_MARKS = regex.compile(rf"[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0640{_INVISIBLE}]")
"""Accents, Hebrew and Arabic vowels, and the Arabic lengthening stroke; the vowels of Hindi and Thai stay."""
_LETTERS = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "ß": "ss", "ى": "ي", "ة": "ه", "ٱ": "ا", "ς": "σ"}
)
"""Letters that are written in two ways and have no decomposition."""
_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
"""Other spelling of letters with marks: "Müller" is "Mueller"."""
_LISTS = read_yaml(Path(__file__).with_name("matching_words.yaml"))
_CYRILLIC_ENDINGS, _KOREAN_PARTICLES, _ARABIC_PREFIXES, _HEBREW_PREFIXES = (
    _LISTS[name].split() for name in ("cyrillic_endings", "korean_particles", "arabic_prefixes", "hebrew_prefixes")
)
"""The stemmers of nltk know more endings, but take seconds to import."""
_OTHER_SPELLINGS = tuple(
    (re.compile(spelling), other)
    for spelling, other in (
        (r"(?<=[a-z]{2})our(?=s?$|e[dr]|[aifl])", "or"),  # colour
        (r"(?<=[a-z]{3})([iy])s(?=e[dsr]?$|ers$|ing$|ation)", r"\1z"),  # organise, analyse
        (r"(?<=[a-z]{2}[bt])re(?=s?$)", "er"),  # centre, fibre
        (
            r"(?<=[a-z])ae(?!l|s?$)|^ae(?=t)|^oe(?=[ds])|(?<=rrh)oe|(?<=^c)oe(?=l)|(?<=^f)oe(?=t)",
            "e",
        ),  # anaemia, oedema
        (r"([aeiou][^aeiou]+[aei])ll(?=e[dr]|ing|o)", r"\1l"),  # travelled
        (r"^grey", "gray"),
        (r"(l|ar|ea|ie|oa|oo)ves$", r"\1f"),  # wolves
        (r"([lnw])ives$", r"\1ife"),  # midwives
    )
)
"""British spelling -> American spelling, and plurals that change a letter -> singular."""
_SHORT_NAMES = {"st": "saint", "ste": "sainte", "mt": "mount", "ft": "fort"}
"""Abbreviations at the beginning of names of places."""
_SHORTEST = 3
"""Minimum number of letters of a word that may have an ending or a prefix more."""
_PLACE_ENDINGS = "市省县縣県区區府都州"
"""Characters at the end of a place's name that need not be said."""


@dataclass(frozen=True, slots=True)
class FoldedWord:
    start: int
    end: int
    """Half-open character range in the original text, without a possessive ending."""
    text: str
    """The word in lower case and without accents."""
    forms: frozenset[str]
    """The text and, e.g., its singular; two words are the same if they share one."""
    capital: bool
    unspaced: bool
    """Whether it is a character of a script without spaces."""


def folded_text(text: str) -> str:
    """Return a text without case, accents, width and invisible characters."""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    digits = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in decomposed)
    return unicodedata.normalize("NFC", _DROPPED_MARKS.sub("", digits)).translate(_LETTERS)


@functools.lru_cache(maxsize=4096)
def folded_words(text: str) -> tuple[FoldedWord, ...]:
    """Split a text into words; English clitics such as 's are left out, and "don't" is one word."""
    words: list[FoldedWord] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        plain = folded_text(match[0])
        behind_apostrophe = bool(words) and words[-1].end == start - 1 and text[start - 1] in _APOSTROPHES
        if behind_apostrophe and plain in _CLITICS:
            continue
        if behind_apostrophe and plain == "t":
            before = words.pop()
            negation = f"{before.text}'t"
            words.append(FoldedWord(before.start, end, negation, frozenset((negation,)), before.capital, False))
            continue
        if plain:
            forms = _forms(match[0], plain)
            unspaced = match["unspaced"] is not None
            words.append(FoldedWord(start, end, plain, forms, match[0][0].isupper(), unspaced))
    return tuple(words)


def _forms(spelling: str, plain: str) -> frozenset[str]:
    forms = {plain}
    composed = unicodedata.normalize("NFKC", spelling).casefold()
    two_letters = composed.translate(_TWO_LETTERS)
    if two_letters != composed:
        forms.add(folded_text(two_letters))
    if len(plain) > _SHORTEST:
        forms = forms.union(*(_singulars(form) for form in forms))
    first = plain[0]
    if plain.isascii() and len(plain) > _SHORTEST:
        for form in tuple(forms):
            for pattern, other in _OTHER_SPELLINGS:
                form = pattern.sub(other, form)
            forms.add(form)
    elif spelling[0].isupper() and plain in _SHORT_NAMES:
        forms.add(_SHORT_NAMES[plain])
    if "а" <= first <= "я" or first in "іїєґ":
        endings = (ending for ending in _CYRILLIC_ENDINGS if plain.endswith(ending))
        forms |= {stem for ending in endings if len(stem := plain.removesuffix(ending)) >= _SHORTEST}
    elif "가" <= first <= "힣":
        endings = (ending for ending in _KOREAN_PARTICLES if plain.endswith(ending))
        forms |= {stem for ending in endings if len(stem := plain.removesuffix(ending)) >= 2}
    elif "\u0590" <= first <= "\u06ff":
        prefixes = _ARABIC_PREFIXES
        if first < "\u0600":
            prefixes = _HEBREW_PREFIXES
        starts = (prefix for prefix in prefixes if plain.startswith(prefix))
        forms |= {rest for prefix in starts if len(rest := plain.removeprefix(prefix)) >= _SHORTEST}
        if plain.endswith("ا") and len(plain) > _SHORTEST + 1:  # an object: "صيدليا"
            forms.add(plain[:-1])
    return frozenset(forms)


def _singulars(word: str) -> tuple[str, ...]:
    """Return a word without a plural or possessive s; one that ends in "ss", "us" or "is" has none."""
    if not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return ()
    if word.endswith("ies") and len(word) > _SHORTEST + 1:
        return word[:-3] + "y", word[:-1]  # "cherries", "movies"
    if word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        return word[:-2], word[:-1]  # "boxes", "houses"
    return (word[:-1],)


def join(words: Sequence[FoldedWord]) -> str:
    return "".join(word.text for word in words)


def unspaced_end(words: Sequence[FoldedWord], place: int, wanted: Sequence[FoldedWord]) -> int | None:
    """Return the index behind a word without spaces that is said from a place on; None if it is not.

    Args:
        words: what is said; every character is a word.
        wanted: the characters of the word.
    """
    end = place + len(wanted)
    if join(words[place:end]) == join(wanted):
        return end
    # "成都" is the city 成都市.
    if len(wanted) > 2 and wanted[-1].text in _PLACE_ENDINGS and join(words[place : end - 1]) == join(wanted[:-1]):
        return end - 1
    return None
