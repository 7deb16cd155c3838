"""Probability that a word is a key token: a logistic model over features of the answer's text.

Features come from the word, the two words on each side, and its place in the answer; `key_token_model.yaml` holds one
coefficient for each and the command that fits them. The word lists and endings are English. It needs no model at run time.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from atwu._file_reading import read_yaml
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.data.schema import Example
from atwu.methods.weightings.nouns import LOWER_CASE_WORDS
from atwu.methods.weightings.rarity import UNIT, WordCounts, mid_ranks, question_words, word_places

TABLE = Path(__file__).with_name("key_token_model.yaml")
NEAR = (-2, -1, 0, 1, 2)
"""Places around a word from which the features in `_features_of_words` are taken, 0 beyond the answer."""
_CLASSES = {
    "comma": ",",
    "be": "is was are were be been being",
    "article": "a an the",
    "and": "and or",
    "relative": "which who that where while thus thereby although though but",
    "pronoun": "he him his she her hers it its they them their i me my we us our you your whose this these those",
    "auxiliary": "has have had can could will would may might does did do s",
    "preposition": "at with from on for into about through like including between",
    "as": "as",
    "by": "by",
    "in": "in",
    "of": "of",
    "to": "to",
}
_ENDINGS = {
    "adverb": ("ly",),
    "ing": ("ing",),
    "ed": ("ed",),
    "abstract": ("ion", "ity", "ness", "ment", "ism", "ship", "ance", "ence", "ure"),
    "adjective": ("al", "ive", "ic", "ous", "ful", "ary", "ent", "ant"),
}
_WORDS = {name: frozenset(words.split()) for name, words in _CLASSES.items()}
_FUNCTION = LOWER_CASE_WORDS.union(*_WORDS.values())
_STEM, _ENDING = 4, 3
"""A word is inflected from one of the question if they agree up to 3 last letters, and in 4 at least."""


def key_token_probabilities(row: EncodedRow, example: Example, counts: WordCounts) -> FloatArray:
    """Return the probability of each counted token's word, shape (counted tokens,).

    Args:
        example: its text, to whose answer `row.answer_offsets` refer.

    Returns:
        Probabilities; 0 for tokens outside words (the terminal token, white space).
    """
    coefficients, intercept = _coefficients()
    found = word_features(example, counts)
    odds = sum((coefficients[name] * values for name, values in found.items()), np.array(intercept))
    probabilities = np.append(1 / (1 + np.exp(-odds)), 0.0)
    return probabilities[[-1 if place is None else place for place in word_places(row, example.answer)]]


def word_features(example: Example, counts: WordCounts) -> dict[str, FloatArray]:
    """Compute the features of each word and punctuation mark of the answer.

    Returns:
        Name -> values, about 0 to 1, shape (words,). `name-1` is `name` of the word before.
    """
    written = UNIT.findall(example.answer)
    words = [word.lower() for word in written]
    own = _features_of_words(written, words, question_words(example), counts)
    features = {f"{name}{place:+}" if place else name: _shifted(own[name], place) for name in own for place in NEAR}
    return features | _features_of_places(words, own)


@functools.cache
def _coefficients() -> tuple[dict[str, float], float]:
    table = read_yaml(TABLE)
    return table["coefficients"], table["intercept"]


def _features_of_words(
    written: Sequence[str], words: Sequence[str], asked: Collection[str], counts: WordCounts
) -> dict[str, FloatArray]:
    stems = {_stem(word) for word in asked if len(word) >= _STEM}
    lexical = [word[0].isalnum() for word in words]
    in_question = [word in asked and is_word for word, is_word in zip(words, lexical, strict=True)]
    inflected = [word not in asked and len(word) >= _STEM and _stem(word) in stems for word in words]
    function = [word in _FUNCTION for word in words]
    opening = [index == 0 or written[index - 1] in '.!?:"“' for index in range(len(written))]
    subjects = np.array([counts.subjects.get(word, 0) for word in words], dtype=np.float64)
    found: dict[str, Iterable[float]] = {
        "punctuation": [not is_word for is_word in lexical],
        "in_question": in_question,
        "inflected": inflected,
        "function": function,
        "opening": opening,
        "name": [word[0].isupper() and not first for word, first in zip(written, opening, strict=True)],
        "number": [word[0].isdigit() for word in words],
        "rarity": mid_ranks(-subjects),
        "unseen": subjects == 0,
        "new": [
            is_word and not any(known)
            for is_word, *known in zip(lexical, in_question, inflected, function, strict=True)
        ],
    }
    found |= {name: [word in members for word in words] for name, members in _WORDS.items()}
    found |= {
        name: [len(word) > _STEM and word.endswith(endings) and word not in _FUNCTION for word in words]
        for name, endings in _ENDINGS.items()
    }
    return {name: np.array(values, dtype=np.float64) for name, values in found.items()}


def _features_of_places(words: Sequence[str], own: dict[str, FloatArray]) -> dict[str, FloatArray]:
    count = len(words)
    place = np.arange(count)
    new, asked = own["new"], own["in_question"] * [len(word) > 2 for word in words]
    last_asked = np.maximum.accumulate(np.where(_shifted(own["in_question"], -1) > 0, place - 1, -1))
    new_before = np.log1p(_before(new)) / 3
    ends = [index + 1 < count and word in ".!?" for index, word in enumerate(words)]
    first = {word: index for index, word in reversed([*enumerate(words)])}
    return {
        "length": np.array([min(len(word), 12) / 12 for word in words]),
        "position": (place + 0.5) / count,
        "place": np.log1p(place) / 4,
        "later_sentence": (_before(np.array(ends, dtype=np.float64)) > 0).astype(np.float64),
        "repeated": (1 - own["function"])
        * (1 - own["punctuation"])
        * (np.array([first[word] for word in words]) < place),
        "new_before": new_before,
        "new_after": np.log1p(new.sum() - _before(new) - new) / 3,
        "asked_before": np.log1p(_before(asked)) / 3,
        "asked_after": np.log1p(asked.sum() - _before(asked) - asked) / 3,
        "since_asked": np.where(last_asked < 0, 0, np.log1p(place - last_asked)) / 3,
        "commas_before": np.minimum(_before(own["comma"]), 3) / 3,
        "relatives_before": np.minimum(_before(own["relative"]), 3) / 3,
        "new_and_new_before": new * new_before,
        "new_and_rarity": new * own["rarity"],
        "name_in_question": own["name"] * own["in_question"],
    }


def _stem(word: str) -> str:
    return word[: max(_STEM, len(word) - _ENDING)]


def _before(values: FloatArray) -> FloatArray:
    """Sum of the values before each place."""
    sums: FloatArray = np.cumsum(values) - values
    return sums


def _shifted(values: FloatArray, place: int) -> FloatArray:
    """Return at each index the value `place` further, 0 beyond either end."""
    margin = max(map(abs, NEAR))
    padded = np.pad(values, margin)
    shifted: FloatArray = padded[margin + place : margin + place + values.size]
    return shifted
