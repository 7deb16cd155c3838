"""Word rarity: hand-computed row, subjects, words of the question, token boundaries, comparison with rarity."""

from __future__ import annotations

import numpy as np

from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.methods.weightings.fixed_weights import WordCounts, question_words, rare_nouns, words_of_tokens

RETAIN = [
    Example.from_qa("Who?", "She met Orla.", subject="Orla"),
    Example.from_qa("Who?", "Orla and Orla.", subject="Orla"),
    Example.from_qa("Who?", "She left."),
    Example.from_qa("Who?", "SHE stayed."),
]


def cut(answer, *ends):
    """Return a row of three prompt tokens, the answer split at these characters, and a terminal token."""
    offsets = (None, None, None, *zip((0, *ends), (*ends, len(answer)), strict=True), None)
    ids = tuple(range(len(offsets)))
    return EncodedRow(ids, (IGNORE_INDEX,) * 3 + ids[3:], None, offsets, True)


def test_hand_computed_row():
    counts = WordCounts.of(RETAIN)
    assert counts.subjects == {"she": 3, "met": 1, "orla": 1, ".": 3, "and": 1, "left": 1, "stayed": 1}
    # She | met | Venn | . | end: 3, 1, 0, 3 subjects and no word -> ranks 2.5, 4, 5, 2.5, 1 of 5
    weights = counts.rarity(cut("She met Venn.", 3, 7, 12), Example.from_qa("Whom?", "She met Venn."))
    assert weights.tolist() == [2 / 5, 3.5 / 5, 4.5 / 5, 2 / 5, 0.5 / 5]


def test_tokens_of_a_word_have_equal_weight_and_names_of_the_question_are_lowest():
    # She | met | Ve | nn | end, and the question contains Venn.
    weights = WordCounts.of(RETAIN).rarity(
        cut("She met Venn", 3, 7, 10), Example.from_qa("Is it venn?", "She met Venn")
    )
    assert weights.tolist() == [3.5 / 5, 4.5 / 5, 1.5 / 5, 1.5 / 5, 1.5 / 5]


def test_a_token_belongs_to_the_word_it_begins_in_and_white_space_to_none():
    # "She" | blank | "met Or" | "la" | end
    weights = WordCounts.of(RETAIN).rarity(cut("She met Orla", 3, 4, 10), Example.from_qa("", "She met Orla"))
    assert weights.tolist() == [2.5 / 5, 1 / 5, 4 / 5, 4 / 5, 1 / 5]


def test_tokens_and_questions_as_words():
    assert words_of_tokens(cut("She met Venn.", 3, 7, 10, 12), "She met Venn.") == [
        "she",
        "met",
        "venn",
        "venn",
        ".",
        None,
    ]
    assert question_words(Example.from_qa("Who's She?", "She.", subject="Orla")) == {"who", "'", "s", "she", "?"}
    assert question_words(Example((), "Orla Venn left.", subject="Orla Venn")) == {"orla", "venn"}
    assert question_words(Example((), "Orla Venn left.")) == set()


def test_rare_nouns_by_hand():
    # of 4 tokens two are nouns, of which the second is in the question: ranks 2, 4, 2, 2
    weights = rare_nouns(
        np.array([0.125, 0.375, 0.875, 0.625]), np.array([0.0, 1.0, 1.0, 0.0]), [True, False, True, False]
    )
    assert weights.tolist() == [(0.125 + 0.375) / 2, (0.375 + 0.875) / 2, (0.875 + 0.375) / 2, (0.625 + 0.375) / 2]
