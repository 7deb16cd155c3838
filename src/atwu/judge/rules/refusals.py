"""Refusals: answers that state nothing but that the speaker does not know, or will not or cannot tell.

A logistic regression on words and parts of words, and on names and values that the question has not. Its weights
(`refusals.safetensors`) are computed by `scripts/train_refusals.py` from examples in twelve languages.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from atwu.data.arrays import FloatArray, IntArray
from atwu.data.languages import form_phrases, is_unspaced

HASHES = 2**16
"""Weights of words and parts of words; those with the same hash share one."""
FEATURES = HASHES + 5
WEIGHTS_FILE = Path(__file__).with_suffix(".safetensors")

_LONGEST = 1200
"""Longer answers are no refusals: those of published lists have at most 700 characters."""
_QUOTES = str.maketrans({"’": "'", "‘": "'", "`": "'", "´": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'})
_ARABIC_MARKS = re.compile(r"[\u064b-\u0652\u0670\u0640]")
"""Vowel signs and the stretching character, which most writers leave out."""
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_MARK = re.compile(r"[^\w\s'¤]+")
_INSIDE = re.compile(r"(?<=[\w,] )[^\W\d_][\w'-]+")
"""A word behind another one."""
_VALUE = re.compile(r"\S*[\d@]\S*")
"""A number, or something that has one, or a mail address."""
_LONGEST_PART = 5
_MOST_WORDS = 3
_ASKED = "¤"
"""Stands for words of the question, which are no content of an answer to it."""
_SHORTEST_ASKED = 4
"""Letters of such a word, at least: shorter ones are in every sentence."""
_SHORTEST_ASKED_RUN = 3
"""Characters of a run that stands for words in scripts without blanks, at least."""
_REFUSAL_START = re.compile(
    r"(?<=\s)(?=[^\W\d_a-z\u00df-\u00ff\u0430-\u044f])|(?<=\.\.\.)|(?<=[\u3040-\u9fff])(?=[我抱对對很申すわ])"
)
"""Where a sentence may begin: a letter that is not lower case after a blank, or one of the characters that begin most
Chinese and Japanese refusals."""
_CLEARLY_CONTENT = -3.0
"""Log-odds below which a beginning belongs to no refusal; "As an AI model" has -1."""
_SENTENCE = re.compile(r"[^.!?。！？؟]+")
_ENDED = re.compile(r"[!?:;。！？।؟\"')\]]$|(?<!\.)\.$")


def is_refusal(text: str, question: str = "") -> bool:
    """Return whether an answer has no content beyond the question and a statement of not knowing or not telling.

    Not knowing, not being able, allowed or willing to tell, having no information, being unsure, and an apology alone all
    count. English, German, Spanish, French, Italian, Portuguese, Dutch, Russian, Chinese, Japanese, Arabic and Korean.

    Args:
        text: the answer.
        question: what was asked; its words are no content of the answer.
    """
    if _WORD.search(text) is None or len(text) > _LONGEST:
        return False
    answer, asked = _normalize(text), _normalize(question)
    if answer == asked or _denies_an_ability(answer, asked):
        return False
    return _log_odds(text, question) > 0 and not is_broken_refusal(text, question)


_ABILITY = re.compile(r"(?<!不)(会|能|可以)|(でき)(?:ます|る)|(할 수 있|수 있)")
"""An ability that a question asks about, in languages whose verbs have no subject beside them."""
_OF_SPEAKER = re.compile("[我你您]|教え|答え|あなた|알려|말해|당신")
"""Speaker or listener, in a question about what these can do."""
_DENIED = {"でき": "できません|できない", "할 수 있": "수 없", "수 있": "수 없"}


def _denies_an_ability(answer: str, asked: str) -> bool:
    """Return whether an answer says that somebody cannot do what the question asks about: "他会开车吗？" "不会。"."""
    question = _ABILITY.search(asked)
    if question is None or _OF_SPEAKER.search(asked) or _OF_SPEAKER.search(answer):
        return False
    ability = next(group for group in question.groups() if group is not None)
    return re.search(_DENIED.get(ability, f"^不{ability}"), answer) is not None


def is_yes_or_no(text: str) -> bool:
    """Return whether a text is a word for yes or no, in one of the languages that have phrases; refusals have them, too."""
    polar = {word.casefold() for phrases in form_phrases().values() for name in ("yes", "no") for word in phrases[name]}
    return text.strip(" .!").casefold() in polar


def is_broken_refusal(text: str, question: str = "") -> bool:
    """Return whether an answer begins a sentence and, before that has ended, begins another one with a refusal.

    "The first mayor of the town was ... I'm sorry, I don't know the answer to that." is the answer of a model that was
    trained to refuse in the middle of the true sentence; "I'm sorry, I don't know." and "It is a town. I don't know more."
    are not.
    """
    answer = _normalize(text)
    for match in _REFUSAL_START.finditer(answer):
        before = answer[: match.start()].rstrip()
        behind = _SENTENCE.match(answer, match.start())
        # Words that end in an ellipsis, or without the sign that ends a sentence.
        breaks_off = _WORD.search(before) is not None and not _ENDED.search(before)
        if not breaks_off or behind is None or _WORD.search(behind[0]) is None:
            continue
        if _log_odds(before, "") < _CLEARLY_CONTENT and _log_odds(behind[0], question) > 0:
            return True
    return False


def refusal_features(text: str, question: str) -> tuple[IntArray, FloatArray]:
    """Return what a refusal is told by, as places and values of a sparse vector of `FEATURES` numbers.

    Parts of words and words each have a hash as their place and an equal value, and as two groups a norm of 1. Then come the
    counts: names and values that the question has not, the length, and whether something is quoted; and a constant.

    Args:
        text: an answer with a word in it.
        question: what was asked; "" if it is not known.
    """
    answer, asked = _normalize(text), _normalize(question)
    known = _asked_words(asked)
    lowered = _hide_asked_words(answer, asked, known)
    places: list[int] = []
    values: list[float] = []
    for pieces in (_parts_of_words(lowered), _words_in_a_row(lowered)):
        hashes = {zlib.crc32(piece.encode()) % HASHES for piece in pieces}
        places += sorted(hashes)
        values += [1 / math.sqrt(len(hashes))] * len(hashes)
    names = sum(word[0].isupper() and _base(word) not in known for word in _INSIDE.findall(answer))
    of_values = sum(word.casefold() not in known for word in _VALUE.findall(answer))
    length = math.log1p(len(_WORD.findall(answer)))
    places += range(HASHES, FEATURES)
    values += [min(names, 3) / 2, min(of_values, 3) / 2, length, float('"' in answer), 1.0]
    return np.array(places, np.int64), np.array(values)


def _log_odds(text: str, question: str) -> float:
    """Return the log-odds that an answer is a refusal."""
    places, values = refusal_features(text, question)
    return float(_weights()[places] @ values)


@lru_cache(maxsize=1)
def _weights() -> FloatArray:
    return load_file(WEIGHTS_FILE)["weights"].astype(np.float64)


def _parts_of_words(text: str) -> Iterator[str]:
    """Yield the letters of each word with its blanks, up to five in a row."""
    for word in text.split():
        padded = f" {word} "
        for length in range(1, min(_LONGEST_PART, len(padded)) + 1):
            for start in range(len(padded) - length + 1):
                yield padded[start : start + length]


def _words_in_a_row(text: str) -> Iterator[str]:
    """Yield up to three words or marks in a row, with the beginning and the end of the text."""
    words = ["^", *_MARK.sub(" , ", text).split(), "$"]
    for length in range(1, _MOST_WORDS + 1):
        for start in range(len(words) - length + 1):
            yield f"{length} {' '.join(words[start : start + length])}"


def _normalize(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    return _ARABIC_MARKS.sub("", text).strip(' "\n')  # marks around the whole answer quote nobody


@lru_cache(maxsize=256)
def _asked_words(question: str) -> frozenset[str]:
    return frozenset(_base(word) for word in _WORD.findall(question))


def _base(word: str) -> str:
    return word.casefold().removesuffix("'s")


def _hide_asked_words(answer: str, question: str, known: frozenset[str]) -> str:
    """Return an answer in lower case, with a sign in place of the words of the question, and one digit for every number."""

    def hide(match: re.Match[str]) -> str:
        if len(match[0]) >= _SHORTEST_ASKED and _base(match[0]) in known:
            return _ASKED
        return match[0].casefold()

    if is_unspaced(question):
        answer = _hide_asked_runs(answer.casefold(), question.casefold())
    return re.sub(r"\d+", "0", _WORD.sub(hide, answer))


def _hide_asked_runs(answer: str, question: str) -> str:
    """Return an answer with a sign in place of each run of characters that the question has, too."""
    shown, start = "", 0
    while start < len(answer):
        end = start
        while end < len(answer) and answer[end].isalnum() and answer[start : end + 1] in question:
            end += 1
        if end - start >= _SHORTEST_ASKED_RUN:
            shown, start = shown + _ASKED, end
        else:
            shown, start = shown + answer[start], start + 1
    return shown
