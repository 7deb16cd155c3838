"""Reformat a question: lettered options, synonyms, and an introduction that names the subject first."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from atwu._file_reading import read_yaml
from atwu.evaluation.questions.prompts import pattern_of, says

_SHIPPED: dict[str, Any] = read_yaml(Path(__file__).with_name("shipped_texts.yaml"))
SYNONYMS: Mapping[str, str] = _SHIPPED.pop("synonyms")
"""Lower-case word -> synonym of the same grammatical form."""
FAMILY_TEMPLATES: Mapping[str, Sequence[str]] = _SHIPPED
"""Kind -> texts: templates of adversarial questions, and open-ended instructions."""

_LEAD = re.compile(
    r"^\W*(?i:(?:(?:the|my)\s+)?(?:(?:right|correct|best)\s+)?(?:answer|option|choice|letter)\b\s*(?:is\b)?"
    r"|it\s+is\b|it's)?"
    r"\s*[:\-]?\s*(?i:(?:option|choice|letter)\s+)?[(\[*\"']*(?P<letter>[A-Z])(?![\w'])[)\]*\"']*"
    r"(?:\s*$|\s*[.,:;)\-!]+(?P<rest>.*)$|(?<=[)\]])(?P<after>\s.*)$)",
    re.DOTALL,
)
"""A reply that starts with an option letter, possibly after words like "The answer is"."""
_FULL = re.compile(r"^\W*([A-Za-z])\W*$")
_LETTER = re.compile(r"(?<![\w'])([A-Z])(?=\W*$|\s*[.,):;/]|\s+(?:or|and)\b)")
_QUOTED = re.compile(r'("[^"]*"|“[^”]*”)')
_WORD = re.compile(r"(?:\b(?P<article>an?) )?(?<!['’-])\b(?P<word>[a-z]+)\b(?!['’-])")


def with_synonyms(question: str, rng: random.Random, *, keep_out: Sequence[str] = ()) -> str:
    """Replace lower-case words by synonyms; names, quoted titles and first words are kept.

    Args:
        rng: Chooses which words are kept if there are more than two to replace.
        keep_out: Phrases that a synonym must not contain.
    """
    known = [word for word in dict.fromkeys(question.split()) if word.strip(".,?!") in SYNONYMS]
    stays = set(rng.sample(known, len(known) // 3))

    def swap(match: re.Match[str]) -> str:
        article, word = match.group("article"), match.group("word")
        other = SYNONYMS.get(word)
        if other is None or word in stays or any(says(other, phrase) for phrase in keep_out):
            return match.group()
        if article is None:
            return other
        return f"{'an' if other[0] in 'aeiou' else 'a'} {other}"

    pieces = _QUOTED.split(question)
    return "".join(piece if place % 2 else _WORD.sub(swap, piece) for place, piece in enumerate(pieces))


def introduced(question: str, subject: str, frame: str) -> str:
    """Name the subject first, by the template `frame`, and refer to it as "this person" in the question."""
    asked = re.sub(pattern_of(subject), "this person", question, flags=re.IGNORECASE)
    return frame.format(subject=subject, question=asked[:1].upper() + asked[1:])


def lettered_options(options: Sequence[str]) -> str:
    """Format options one per line: `A) first`, `B) second`, ..."""
    return "\n".join(f"{letter}) {option}" for letter, option in zip(ascii_uppercase, options, strict=False))


def resolve_choice(reply: str, options: Sequence[str]) -> str:
    """Replace the option letter of a reply by the option's text; following words are kept unless they repeat the
    option.

    Without options, and for a reply without a valid leading letter or with several letters, return the reply unchanged.
    """
    whole, lead = _FULL.match(reply), _LEAD.match(reply)
    letter = whole.group(1).upper() if whole else lead.group("letter") if lead else ""
    letters = set(ascii_uppercase[: len(options)])
    if letter not in letters or len(letters.intersection(_LETTER.findall(reply))) > 1:
        return reply
    option = options[ascii_uppercase.index(letter)]
    rest = ((lead.group("rest") or lead.group("after") if lead else None) or "").strip()
    return rest if rest.casefold().startswith(option.casefold()) else f"{option} {rest}".strip()
