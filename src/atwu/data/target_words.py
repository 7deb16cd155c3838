"""Word-level labels of the form {"word", "start", "end"} into forget spans.

The form of the published word labels for TOFU (Zhou et al. 2025). Their positions are not always right: a word that
comes twice is marked at its first place both times. Such marks go to the next place of the word that is still free,
and are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from atwu.data.schema import Span, merged_spans

MOVED = "moved"
MERGED = "merged"


def target_word_spans(
    items: Sequence[Any], answer: str, *, where: str, counts: Counter[str] | None = None
) -> tuple[Span, ...]:
    """Check the marked words of one answer and give their character ranges.

    Marks whose text is their word and whose place is free come first, in the order given. Every other mark takes the
    next free place of its word, from its own start on and then from the beginning of the answer; places inside other
    words are looked at only if the word stands nowhere by itself. When all its places are taken, the mark repeats one
    of them. What overlaps is merged.

    Args:
        items: one {"word", "start", "end"} per mark; `answer[start:end]` should be the word.
        answer: text that the positions refer to.
        where: the record's place, put in front of every error.
        counts: receives how many marks were `MOVED` and how many `MERGED` into another.

    Returns:
        Sorted ranges that do not overlap.

    Raises:
        ValueError: a malformed mark, a range outside the answer, or a word that the answer does not hold.
    """
    counts = Counter() if counts is None else counts
    marks = [_mark(item, answer, where) for item in items]
    taken: dict[int, Span] = {}
    for index, (word, span) in enumerate(marks):
        if answer[slice(*span)] == word and span not in taken.values():
            taken[index] = span
    for index, (word, span) in enumerate(marks):
        if index in taken:
            continue
        places = _places(word, answer, first=span[0])
        if not places:
            raise ValueError(
                f"{where}, column 'target_words': the answer has {answer[slice(*span)]!r} at {list(span)} and does not "
                f"hold {word!r:.80} anywhere; correct the word or remove the mark."
            )
        free = [place for place in places if place not in taken.values()]
        taken[index] = free[0] if free else places[0]
        counts[MOVED] += bool(free)
    merged = merged_spans(taken.values())
    counts[MERGED] += len(taken) - len(merged)
    return merged


def target_words_warnings(counts: Counter[str]) -> Iterator[str]:
    """One sentence about all rows of a source, if anything had to be mended."""
    done = {
        "moved to the next free place of their word": counts[MOVED],
        "merged with one that they overlap": counts[MERGED],
    }
    if any(done.values()):
        text = ", ".join(f"{count} {what}" for what, count in done.items() if count)
        yield f"target_words: marks that do not stand as given: {text}"


def _mark(item: Any, answer: str, where: str) -> tuple[str, Span]:
    expected = '{"word": text, "start": integer, "end": integer}'
    fields = [item.get(key) for key in ("word", "start", "end")] if isinstance(item, Mapping) else []
    word, start, end = fields or (None, None, None)
    if not isinstance(word, str) or not word.strip() or type(start) is not int or type(end) is not int:
        raise ValueError(f"{where}, column 'target_words': {item!r:.80} is not a mark; expected {expected}.")
    if not 0 <= start < end <= len(answer):
        raise ValueError(
            f"{where}, column 'target_words': range [{start}, {end}] of {word!r:.80} breaks 0 <= start < end <= "
            f"{len(answer)} (the answer has {len(answer)} characters)."
        )
    return word, (start, end)


def _places(word: str, answer: str, *, first: int) -> list[Span]:
    """Where the word stands, from `first` on and then on its left; inside other words only if nowhere by itself."""
    whole = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", answer)]
    places = whole or [match.span() for match in re.finditer(re.escape(word), answer)]
    return sorted(places, key=lambda span: (span[0] < first, span))
