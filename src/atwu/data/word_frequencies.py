"""How frequent a word is in general text, in its language or in all those of its script (Zipf scale: 3 is 1 in a million)."""

from __future__ import annotations

import functools

_LANGUAGES = {
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
    largest = max(english, *(listed_frequency(word, language) for language in _LANGUAGES[script]))
    return english if name and largest < _COMMON and script == "latin" else largest


_LISTED = {"no": "nb", "ja": "en", "ko": "en", "th": "en", "zh": "en"}
"""Language -> the one whose list is read. Those of Japanese, Korean and Chinese need further packages, and Thai has none: there
the list is for words in Latin letters."""


@functools.lru_cache(maxsize=65536)
def listed_frequency(word: str, language: str) -> float:
    """Return the frequency of a word in texts of a language (Zipf scale); 0 for a word that is not in its list."""
    from wordfreq import zipf_frequency  # a third of a second

    return float(zipf_frequency(word, _LISTED.get(language, language), wordlist="small"))
