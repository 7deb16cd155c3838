"""The language of a short text, how frequent a word is in it, and its words for the forms of a question (`form_phrases.yaml`).

Frequencies are on the Zipf scale: 3 is one word in a million.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from atwu._file_reading import read_yaml
from atwu.data.schema import Example
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


Phrases: TypeAlias = Mapping[str, tuple[str, ...]]
"""Name of a form, or of a kind of words -> its texts."""


@functools.cache
def form_phrases() -> Mapping[str, Phrases]:
    """Return language -> its phrases."""
    languages: dict[str, dict[str, str | list[str]]] = read_yaml(Path(__file__).with_name("form_phrases.yaml"))
    by_language: dict[str, Phrases] = {}
    for language, phrases in languages.items():
        # A single text is written without a list.
        several = {name: [texts] if isinstance(texts, str) else texts for name, texts in phrases.items()}
        by_language[language] = {name: tuple(texts) for name, texts in several.items()}
    return by_language


def row_language(row: Example) -> str:
    """Return the language of a row, or of a plain text.

    The answer is read with the question: a short question may look like one in a neighbour language ("Woran leidet Katrin
    Vogel?" like Norwegian, "Who diagnosed Mina Park?" like Italian).
    """
    return detect_language(f"{row.question} {row.answer}".strip())


def beginnings(form: str) -> tuple[str, ...]:
    """Return the beginnings of a plain text in a form, in all languages."""
    return tuple(text for phrases in form_phrases().values() for text in phrases[form])


def opposite_answer(row: Example) -> str | None:
    """Return "No" for an answer that begins with "Yes", and the other way round; None for other answers."""
    said = polar_word(row)
    if said is None:
        return None
    phrases = form_phrases()[row_language(row)]
    if said in phrases["yes"]:
        return phrases["no"][0]
    return phrases["yes"][0]


def polar_word(row: Example) -> str | None:
    """Return the word for yes or no, in the language of the row, with which an answer begins; None for other answers.

    A row whose labels are all elsewhere asks for more than yes or no: "Yes, she lives in Port Sel." with the label "Port Sel".
    """
    language = row_language(row)
    if language not in form_phrases() or not row.messages:
        return None
    match = _polar_beginning(language).match(row.answer)
    if match is None:
        return None
    labels = row.forget_spans or ()
    if not labels and row.asked_span is not None:
        labels = (row.asked_span,)
    if labels and all(start >= match.end() for start, _ in labels):
        return None
    return match.group()


@functools.cache
def _polar_beginning(language: str) -> re.Pattern[str]:
    """Return a pattern of yes and no at the beginning of an answer in a language that has phrases."""
    phrases = form_phrases()[language]
    words = sorted((*phrases["yes"], *phrases["no"]), key=len, reverse=True)
    # "No. 5" is a number, and "No man is an island" no answer to a yes/no question.
    return re.compile(rf"(?:{'|'.join(words)})(?=[,;:!。，、；！،؛—–-]|\s*[.]?\s*$|\.\s+\D|\s[–—-])")
