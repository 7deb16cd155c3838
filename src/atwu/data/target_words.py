"""Convert word labels of the form {"word", "start", "end"} to forget spans.

The published word labels for TOFU (Zhou et al. 2025) have this form. Some positions are wrong: a word that occurs twice is
labelled at its first position both times. Such labels are moved to the next free occurrence of the word, and counted.
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
    """Check the labelled words of one answer and return their character ranges.

    Labels whose range contains their word are placed first, in the given order. Each other label takes the next free
    occurrence of its word, searching from its own start and then from the beginning of the answer; occurrences inside other
    words are used only if there is no separate one. If all occurrences are taken, the label repeats one. Overlapping ranges
    are merged.

    Args:
        items: one {"word", "start", "end"} per label; `answer[start:end]` should be the word.
        answer: text that the positions refer to.
        where: location of the record, the prefix of error messages.
        counts: receives the number of labels that were `MOVED` and `MERGED` into another.

    Returns:
        Sorted ranges that do not overlap.

    Raises:
        ValueError: a label is malformed, its range is outside the answer, or the answer does not contain its word.
    """
    counts = Counter() if counts is None else counts
    labels = [_label(item, answer, where) for item in items]
    taken: dict[int, Span] = {}
    for index, (word, span) in enumerate(labels):
        if answer[slice(*span)] == word and span not in taken.values():
            taken[index] = span
    for index, (word, span) in enumerate(labels):
        if index in taken:
            continue
        places = _places(word, answer, first=span[0])
        if not places:
            raise ValueError(
                f"{where}, column 'target_words': the answer has {answer[slice(*span)]!r} at {list(span)} and does not "
                f"contain {word!r:.80}; correct the word or remove the label."
            )
        free = [place for place in places if place not in taken.values()]
        taken[index] = free[0] if free else places[0]
        counts[MOVED] += bool(free)
    merged = merged_spans(taken.values())
    counts[MERGED] += len(taken) - len(merged)
    return merged


def target_words_warnings(counts: Counter[str]) -> Iterator[str]:
    """Yield one warning about the corrections in all rows of a source, if any."""
    corrections = {
        "moved to the next free occurrence of their word": counts[MOVED],
        "merged with an overlapping label": counts[MERGED],
    }
    if any(corrections.values()):
        text = ", ".join(f"{count} {what}" for what, count in corrections.items() if count)
        yield f"target_words: labels with corrected positions: {text}"


def _label(item: Any, answer: str, where: str) -> tuple[str, Span]:
    expected = '{"word": text, "start": integer, "end": integer}'
    fields = [item.get(key) for key in ("word", "start", "end")] if isinstance(item, Mapping) else []
    word, start, end = fields or (None, None, None)
    if not isinstance(word, str) or not word.strip() or type(start) is not int or type(end) is not int:
        raise ValueError(f"{where}, column 'target_words': {item!r:.80} is not a label; expected {expected}.")
    if not 0 <= start < end <= len(answer):
        raise ValueError(
            f"{where}, column 'target_words': range [{start}, {end}] of {word!r:.80} breaks 0 <= start < end <= "
            f"{len(answer)} (the answer has {len(answer)} characters)."
        )
    return word, (start, end)


def _places(word: str, answer: str, *, first: int) -> list[Span]:
    """Find the occurrences of a word, from `first` on and then before it; inside other words only if it has no other."""
    whole = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", answer)]
    places = whole or [match.span() for match in re.finditer(re.escape(word), answer)]
    return sorted(places, key=lambda span: (span[0] < first, span))
