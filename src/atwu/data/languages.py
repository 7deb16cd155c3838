"""The language of a short text, scripts that are written without spaces, and how frequent a word is in its language.

Frequencies are on the Zipf scale: 3 is one word in a million.
"""

from __future__ import annotations

import functools
import re

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from atwu.data.value_parts import UNSPACED

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
"""A word, with inner apostrophes and hyphens."""
# py3langid names the language of 98.6 % of 220 short questions in eleven languages, lingua-language-detector of 87.3 %
# (tests/data/questions_by_language.yaml, the same 30 languages), and it has 5 MB instead of 96 MB. Names are removed first:
# with them, it is right in 95.9 % ("Wo wohnt Claire Dubosc?" looks French). All 28 questions in other languages are known as
# such.
_LANGUAGES = tuple(
    re.findall(r"\w+", "ar cs da de el en es fa fi fr he hi hu id it ja ko nl no pl pt ro ru sv th tr uk vi zh")
)
"""Languages to choose from: those with many speakers. With all 97 of the library, Galician takes Portuguese questions."""
_NAME = re.compile(r"(?<=\S)\s+[^\W\d_a-zß-öø-ÿа-яё][\w'’.-]*")
"""A word with a capital behind another word."""
_UNSPACED = re.compile(f"[{UNSPACED}\uac00-\ud7af]")
"""A letter of a script without spaces between words, or of Korean, where particles are joined to words."""
_CASELESS = re.compile(r"[\u0590-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""A letter of a script without capitals."""


@functools.lru_cache(maxsize=65536)
def detect_language(text: str) -> str:
    """Return the ISO 639-1 code of a text's language; the likeliest of `_LANGUAGES` if it has another one."""
    capitals_removed = text
    if not is_caseless(text):
        capitals_removed = _NAME.sub(" ", text)
    language: str = _identifier().classify(capitals_removed)[0]
    return language


@functools.cache
def _identifier() -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(_LANGUAGES)
    return identifier


def is_unspaced(text: str) -> bool:
    """Return whether a text contains letters of a script without spaces between words."""
    return bool(_UNSPACED.search(text))


def is_caseless(text: str) -> bool:
    """Return whether a text contains letters of a script without capitals."""
    return bool(_CASELESS.search(text))


def count_words(text: str) -> int:
    """Return the number of words; two letters of a script without spaces count as one."""
    return sum(max(1, len(_UNSPACED.findall(word)) // 2) for word in WORD.findall(text))


_WORD_LISTS = {
    "latin": ("de", "fr", "es", "it", "pt", "nl"),
    "cyrillic": ("ru", "uk"),
    "greek": ("el",),
    "arabic": ("ar", "fa"),
    "hebrew": ("he",),
    "hindi": ("hi",),
}
"""Word lists of `wordfreq` per script beside the English one; a word is rare if it is in all of them."""
_COMMON = 5.0
"""Frequency from which a word of another language is one of its everyday words, whatever it is in English: "Kinder"."""
_SCRIPTS = (
    ("latin", "a", "ɏ"),
    ("greek", "Ͱ", "Ͽ"),
    ("cyrillic", "Ѐ", "ԯ"),
    ("hebrew", "\u0590", "\u05ff"),
    ("arabic", "\u0600", "\u06ff"),
    ("hindi", "\u0900", "\u097f"),
)


@functools.lru_cache(maxsize=65536)
def word_frequency(word: str, *, name: bool) -> float:
    """Return the frequency of a word in general text, the largest over the languages of its script (Zipf scale).

    In a name only the English one counts, unless the word is an everyday word elsewhere: "Berg", "Linz" and "Fischer" are
    frequent in German texts, and yet give "Anna Berg" away. Words of scripts without a list, and Korean ones, which would
    need a dictionary to be divided, count as frequent.
    """
    script = next((script for script, first, last in _SCRIPTS if first <= word[0] <= last), None)
    if script is None:
        return 8.0
    english = listed_frequency(word, "en")
    largest = max(english, *(listed_frequency(word, language) for language in _WORD_LISTS[script]))
    if name and largest < _COMMON and script == "latin":
        return english
    return largest


_LISTED = {"no": "nb", "ja": "en", "ko": "en", "th": "en", "zh": "en"}
"""Language -> the one whose list is read. Those of Japanese, Korean and Chinese need further packages, and Thai has none: there
the list is for words in Latin letters."""


@functools.lru_cache(maxsize=65536)
def listed_frequency(word: str, language: str) -> float:
    """Return the frequency of a word in texts of a language (Zipf scale); 0 for a word that is not in its list."""
    from wordfreq import zipf_frequency  # a third of a second

    return float(zipf_frequency(word, _LISTED.get(language, language), wordlist="small"))
