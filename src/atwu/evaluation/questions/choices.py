"""Lettered options of a multiple-choice question, and which of them a reply means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

_LEAD = re.compile(
    r"^\W*(?i:(?:(?:the|my)\s+)?(?:(?:right|correct|best)\s+)?(?:answer|option|choice|letter)\b\s*(?:is\b)?"
    r"|it\s+is\b|it's)?"
    r"\s*[:\-]?\s*(?i:(?:option|choice|letter)\s+)?[(\[*\"']*(?P<letter>[A-Z])(?![\w'])[)\]*\"']*"
    r"(?:\s*$|\s*[.,:;)\-!]+(?P<rest>.*)$|(?<=[)\]])(?P<after>\s.*)$)",
    re.DOTALL,
)
"""A reply that starts with a letter set off by punctuation, perhaps after words like "The answer is"."""
_FULL = re.compile(r"^\W*([A-Za-z])\W*$")
_LETTER = re.compile(r"(?<![\w'])([A-Z])(?=\W*$|\s*[.,):;/]|\s+(?:or|and)\b)")


def listed(options: Sequence[str]) -> str:
    """Options one per line: `A) first`, `B) second`, ..."""
    return "\n".join(f"{letter}) {option}" for letter, option in zip(ascii_uppercase, options, strict=False))


def resolve_choice(reply: str, options: Sequence[str]) -> str:
    """Put the option's text in place of a reply's letter; words after it are kept unless they repeat the option.

    A reply without a leading letter, with a letter that is not offered, or with several letters is returned as it is, and so is
    every reply where there are no options.
    """
    whole, lead = _FULL.match(reply), _LEAD.match(reply)
    letter = whole.group(1).upper() if whole else lead.group("letter") if lead else ""
    letters = set(ascii_uppercase[: len(options)])
    if letter not in letters or len(letters.intersection(_LETTER.findall(reply))) > 1:
        return reply
    option = options[ascii_uppercase.index(letter)]
    rest = ((lead.group("rest") or lead.group("after") if lead else None) or "").strip()
    return rest if rest.casefold().startswith(option.casefold()) else f"{option} {rest}".strip()
