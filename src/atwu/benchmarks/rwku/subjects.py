"""Subjects of RWKU: the two groups of ten in the ATWU paper, and the syntax that selects subjects.

The syntax is `canonical`, `surrogate`, `first20`, names as in the files, or several of these joined by `|`.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

CANONICAL_FORGET = (
    "Beyoncé",
    "Blake Lively",
    "Bruce Springsteen",
    "Catherine, Princess of Wales",
    "Daniel Day-Lewis",
    "Donald Trump",
    "Dr. Dre",
    "Elon Musk",
    "Jennifer Lopez",
    "Jeff Goldblum",
)
"""The ten subjects that the ATWU paper unlearns together."""
SURROGATE_RETAIN = (
    "Evel Knievel",
    "Franklin D. Roosevelt",
    "Grace Kelly",
    "Halle Berry",
    "Henry Winkler",
    "Ice Cube",
    "James Earl Jones",
    "Jeff Bridges",
    "Jay-Z",
    "Jimmy Carter",
)
"""The ten other subjects that serve as the retain set."""

GRAMMAR = "canonical, surrogate, firstK (such as first20), names as in the files, or several of these joined by |"

_LISTS = {"canonical": CANONICAL_FORGET, "surrogate": SURROGATE_RETAIN}
_FIRST = re.compile(r"first(\d+)")


def subject_names(words: str, published: Sequence[str]) -> tuple[str, ...]:
    """Parse a selection of subjects, without duplicates.

    Args:
        words: such as `canonical|surrogate`, `first20` or `Orla Venn|Tavi Brook`.
        published: all names of the data set, in its order.
    """
    names: list[str] = []
    for word in words.split("|"):
        word = normal_name(word)
        first = _FIRST.fullmatch(word)
        if first and not 1 <= int(first[1]) <= len(published):
            raise ValueError(
                f"{word} is out of range: RWKU has {len(published)} subjects, so K must be from 1 to {len(published)}."
            )
        names += published[: int(first[1])] if first else _LISTS.get(word, (word,))
    unknown = [name for name in dict.fromkeys(names) if name not in published]
    if unknown:
        raise ValueError(
            f"RWKU has no subject {with_close_names(unknown, published)}. Subjects are {GRAMMAR}; "
            "a name must be spelled as in the files, with its accents, commas and capitals."
        )
    return tuple(dict.fromkeys(names))


def with_close_names(unknown: Iterable[str], known: Collection[str]) -> str:
    """List unknown names, each with similar known ones."""
    plain = {_plain(name): name for name in sorted(known)}
    hints = []
    for name in unknown:
        near = [plain[close] for close in difflib.get_close_matches(_plain(name), plain, n=3)]
        hints.append(f"{name!r}" + (f" (close: {', '.join(near)})" if near else ""))
    return "; ".join(hints)


def normal_name(name: str) -> str:
    """Normalize a name for comparison (Unicode NFC)."""
    return unicodedata.normalize("NFC", name.strip())


def names_one_of(text: str, subjects: Iterable[str]) -> bool:
    """Whether a text contains the full name of a subject, ignoring case; a surname alone does not count."""
    flat = normal_name(re.sub(r"\s+", " ", text).replace(" ,", ",")).casefold()
    return any(re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", flat) for name in subjects)


def _plain(name: str) -> str:
    """Lower-case a name and remove accents."""
    letters = unicodedata.normalize("NFD", name.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
