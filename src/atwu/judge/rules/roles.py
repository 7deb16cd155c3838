"""Whether an answer gives a fact to the wrong one of two: the father's trade to the mother."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atwu.judge.rules.normalise import Word, words_of
from atwu.judge.rules.numerals import listed

RELATIVES = frozenset(
    word.stem
    for word in words_of(
        "father mother parent brother sister sibling son daughter husband wife spouse uncle aunt cousin nephew niece "
        "grandfather grandmother neighbour colleague"
    )
)
"""People named by what they are to somebody."""
_JOINS = frozenset(listed("and while but whereas"))


@dataclass(frozen=True, slots=True)
class _Part:
    """A clause or an item of a list."""

    holders: frozenset[str]
    """Stems of relatives, and of words of the question if it asks for one thing "and" another."""
    values: frozenset[str]
    """Stems of its other content words."""


def given_to_another(question: str, reference: Sequence[Word], answer: Sequence[Word]) -> str | None:
    """The word that the answer gives to another holder than the reference does, if any.

    A reference tells the holders apart when each stands in one part of it only: "her father is a baker and her mother a
    cook". An answer that lists holders first and facts after ("Ann and Bo, in Tarn and Moss") is left alone.
    """
    words = words_of(question)
    several = any(word.text == "and" for word in words)
    asked = {word.stem for word in words if not word.function} if several else set()
    told = _parts(reference, asked)
    once = {
        stem
        for part in told
        for stem in part.holders
        if part.values and sum(stem in other.holders for other in told) == 1
    }
    if len([part for part in told if part.holders & once and part.values]) < 2:
        return None
    owner: dict[str, frozenset[str]] = {}
    for part in told:
        for value in part.values:
            owner[value] = owner.get(value, frozenset()) | (part.holders & once)
    for part in _parts(answer, asked):
        holders = part.holders & once
        for value in sorted(part.values):
            if holders and owner.get(value) and not holders & owner[value]:
                return value
    return None


def _parts(words: Sequence[Word], asked: set[str]) -> list[_Part]:
    parts: list[_Part] = []
    holders: set[str] = set()
    values: set[str] = set()
    for word in (*words, None):
        if word is None or word.gap or word.text in _JOINS:
            ends_with_holders_only = word is not None and word.gap != "." and not values
            if not ends_with_holders_only:
                parts.append(_Part(frozenset(holders), frozenset(values)))
                holders, values = set(), set()
        if word is not None and not word.function:
            (holders if word.stem in asked or word.stem in RELATIVES else values).add(word.stem)
    return parts
