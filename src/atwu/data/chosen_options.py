"""Which of listed options an answer chooses: by its letter, or by naming one (`matching.py`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

from atwu.data.matching import find_statements
from atwu.data.schema import Span

_LEAD = re.compile(
    r"^\W*(?i:(?:(?:the|my)\s+)?(?:(?:right|correct|best)\s+)?(?:answer|option|choice|letter)\b\s*(?:is\b)?"
    r"|it\s+is\b|it's)?"
    r"\s*[:\-]?\s*(?i:(?:option|choice|letter)\s+)?[(\[*\"']*(?P<letter>[A-Z])(?![\w'])[)\]*\"']*"
    r"(?:\s*$|\s*[.,:;)\-!]+(?P<rest>.*)$|(?<=[)\]])(?P<after>\s.*)$"
    r"|\s+(?:is\s+(?:the\s+)?(?:correct|right|true|answer)\b|because\b|since\b|as\b)(?P<why>.*)$)",
    re.DOTALL,
)
"""An answer that starts with an option letter, possibly after words like "The answer is"."""
_WHOLE = re.compile(r"^\W*([A-Za-z])\W*$")
_LETTER = re.compile(r"(?<![\w'])([A-Z])(?=\W*$|\s*[.,):;/]|\s+(?:or|and)\b)")
_ALONE = re.compile(r"(?<![A-Za-z\d'])[A-Z](?![A-Za-z\d'])")
_LAST_LETTER = re.compile(rf"^(?:\S+\s+){{0,6}}\S*?({_ALONE.pattern})\W*$")
"""A letter at the end of a short answer, in any language: "Die richtige Antwort ist C.", "正确答案是B。"."""
_DENIED = re.compile(
    r"\b(?:not|nicht|nor|non|no|pas|kein|keine|rather than|instead of)\s+(?:the\s+|in\s+)?$", re.IGNORECASE
)

_CALLED_WRONG = re.compile(
    r"\W*\s(?:is|are|would be|ist|est|es|è)\s+(?:wrong|incorrect|false|not|falsch|nicht|faux|falso)\b", re.IGNORECASE
)


def option_letter(answer: str, count: int) -> tuple[int, str] | None:
    """Return the option that an answer chooses by its letter, and what follows the letter.

    Args:
        count: number of options, lettered A, B, ...

    Returns:
        Index of the option and the following text; None for an answer without a leading letter, or with several letters.
    """
    whole, lead = _WHOLE.match(answer), _LEAD.match(answer)
    letter = ""
    if whole is not None:
        letter = whole[1].upper()
    elif lead is not None:
        letter = lead["letter"]
    letters = ascii_uppercase[:count]
    if not letter or letter not in letters or len(set(letters).intersection(_LETTER.findall(answer))) > 1:
        return None
    rest = ""
    if lead is not None:
        rest = lead["rest"] or lead["after"] or lead["why"] or ""
    return letters.index(letter), rest.strip()


def chosen_option(answer: str, options: Sequence[str]) -> int | None:
    """Return the index of the option that an answer chooses; None if it chooses none, or several.

    A leading letter ("B", "(b)", "The answer is B.") chooses. Otherwise the one option that the answer names does: options
    behind "not" and options within a longer one that is named ("Paris" in "Paris, Texas") do not count. Of an answer that names
    none, a letter at its end chooses.
    """
    lettered = option_letter(answer, len(options))
    if lettered is not None:
        return lettered[0]
    named: dict[int, list[Span]] = {}
    for place, option in enumerate(options):
        spans = find_statements(answer, option)
        named[place] = [
            span
            for span in spans
            if not _DENIED.search(answer[: span[0]]) and not _CALLED_WRONG.match(answer[span[1] :])
        ]
    chosen = [place for place, spans in named.items() if any(not _within_other(span, place, named) for span in spans)]
    if len(chosen) == 1:
        return chosen[0]
    last = _LAST_LETTER.match(answer.strip())
    letters = ascii_uppercase[: len(options)]
    # Two options that are named, or two letters, leave the choice open.
    if chosen or last is None or last[1] not in letters or _DENIED.search(answer.strip()[: last.start(1)]):
        return None
    if len(set(letters).intersection(_ALONE.findall(answer))) > 1:
        return None
    return letters.index(last[1])


def _within_other(span: Span, place: int, named: dict[int, list[Span]]) -> bool:
    """Return whether a longer range in which another option is named contains a range."""
    others = [other for index, spans in named.items() if index != place for other in spans]
    return any(start <= span[0] and span[1] <= end and end - start > span[1] - span[0] for start, end in others)
