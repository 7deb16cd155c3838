"""A question in other words: synonyms from a table, and the subject introduced apart from the question."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from atwu.evaluation.questions.rows import pattern_of, says

_QUOTED = re.compile(r'("[^"]*"|“[^”]*”)')
_WORD = re.compile(r"(?:\b(?P<article>an?) )?(?<!['’-])\b(?P<word>[a-z]+)\b(?!['’-])")


def reworded(question: str, synonyms: Mapping[str, str], rng: random.Random, *, keep_out: Sequence[str] = ()) -> str:
    """Replace lower-case words that the table knows; names, titles in quotation marks and first words stay.

    Args:
        rng: decides which words stay where there are more than two to replace.
        keep_out: phrases that a replacement must not hold.
    """
    known = [word for word in dict.fromkeys(question.split()) if word.strip(".,?!") in synonyms]
    stays = set(rng.sample(known, len(known) // 3))

    def swap(match: re.Match[str]) -> str:
        article, word = match.group("article"), match.group("word")
        other = synonyms.get(word)
        if other is None or word in stays or any(says(other, phrase) for phrase in keep_out):
            return match.group()
        if article is None:
            return other
        return f"{'an' if other[0] in 'aeiou' else 'a'} {other}"

    pieces = _QUOTED.split(question)
    return "".join(piece if place % 2 else _WORD.sub(swap, piece) for place, piece in enumerate(pieces))


def introduced(question: str, subject: str, frame: str, stand_in: str) -> str:
    """Name the subject first, by `frame`, and call it `stand_in` in the question itself."""
    asked = re.sub(pattern_of(subject), stand_in, question, flags=re.IGNORECASE)
    return frame.format(subject=subject, question=asked[:1].upper() + asked[1:])
