"""Whether an answer gives a fact to the wrong one of two: the father's trade to the mother."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from atwu.judge.rules.numerals import listed
from atwu.judge.rules.words import Word, stems_of, words_of

_RELATIVES = (
    "father mother parent brother sister sibling son daughter husband wife spouse uncle aunt cousin nephew niece "
    "grandfather grandmother neighbour colleague"
)
_JOINS = frozenset(listed("and while but whereas"))


class _Part(NamedTuple):
    """A clause or an item of a list, as stems."""

    holders: set[str]
    """Relatives, and words of the question if it asks for one thing "and" another."""
    values: set[str]
    """Its other content words."""


def given_to_another(question: str, reference: Sequence[Word], answer: Sequence[Word]) -> str | None:
    """The word that the answer gives to another holder than the reference does, if any.

    A reference tells the holders apart when each stands in one part of it only: "her father is a baker and her mother a
    cook". An answer that lists holders first and facts after ("Ann and Bo, in Tarn and Moss") is left alone.
    """
    several = any(word.text == "and" for word in words_of(question))
    asked = stems_of(f"{_RELATIVES} {question}" if several else _RELATIVES)
    told = [part for part in _parts(reference, asked) if part.values]
    held = [stem for part in told for stem in part.holders]
    once = {stem for stem in held if held.count(stem) == 1}
    if sum(bool(part.holders & once) for part in told) < 2:
        return None
    owners: dict[str, set[str]] = {}
    for part in told:
        for value in part.values:
            owners[value] = owners.get(value, set()) | (part.holders & once)
    for part in _parts(answer, asked):
        holders = part.holders & once
        for value in sorted(part.values):
            if holders and owners.get(value) and not holders & owners[value]:
                return value
    return None


def _parts(words: Sequence[Word], asked: Set[str]) -> list[_Part]:
    parts = [_Part(set(), set())]
    for word in words:
        if (word.gap or word.text in _JOINS) and (parts[-1].values or word.gap == "."):
            parts.append(_Part(set(), set()))
        if not word.function:
            (parts[-1].holders if word.stem in asked else parts[-1].values).add(word.stem)
    return parts
