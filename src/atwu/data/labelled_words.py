"""Labels of words as `forget_spans`, for oracle weights and AUROC: from a list of words, or from labels with positions.

All functions work on characters, without a tokenizer. Published word labels for TOFU (Zhou et al. 2025) have the form {"word",
"start", "end"}, and some positions are wrong: a word that occurs twice is labelled at its first position both times. Such
labels are moved to the next free occurrence of the word, and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from atwu._file_reading import file_text
from atwu.data.schema import Example, Span, checked_span, merged_spans

MOVED = "moved"
MERGED = "merged"
_LETTER = r"[\w\u0300-\u036f]"  # a combining accent belongs to the previous letter
_INTERCHANGEABLE = dict.fromkeys("'’", "['’]") | dict.fromkeys("-\u2010\u2011", "[-\u2010\u2011]")


def label_words(examples: Iterable[Example], words: Sequence[str]) -> list[Example]:
    """Label every occurrence of words or phrases in the answers, ignoring case.

    A word matches if no letter, digit or underscore is next to it: "Orla" matches in "Orla's" and "Orla-Mae", not in
    "Orlando". Hyphens and apostrophes must match, where typographic variants are equal; white space within a phrase may
    differ.

    Args:
        examples: the rows; existing `forget_spans` are replaced.

    Returns:
        Copies with sorted, merged `forget_spans`; () if no word occurs.
    """
    if isinstance(words, str):
        raise ValueError(f"words must be a list of words, got the string {words[:60]!r}; pass [{words[:60]!r}].")
    patterns = [_pattern(word) for word in words]
    if not patterns:
        raise ValueError("words is empty; pass at least one word or phrase to label.")
    return [
        replace(
            example,
            forget_spans=merged_spans(
                match.span(1) for pattern in patterns for match in pattern.finditer(example.answer)
            ),
        )
        for example in examples
    ]


def read_words(path: str | Path) -> tuple[str, ...]:
    """Read words or phrases, one per line; blank lines, lines that start with `#` and duplicates are skipped."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file; give a text file with one word or phrase per line.")
    words = [line.strip() for line in file_text(path).replace("\r", "\n").split("\n")]
    unique = tuple(dict.fromkeys(word for word in words if word and not word.startswith("#")))
    if not unique:
        raise ValueError(f"{path}: contains no words; write one word or phrase per line (lines with # are comments).")
    return unique


def _pattern(word: str) -> re.Pattern[str]:
    parts = word.split()
    if not parts:
        raise ValueError(f"words contains the blank word {word!r}; remove it.")
    body = r"\s+".join("".join(_INTERCHANGEABLE.get(char, re.escape(char)) for char in part) for part in parts)
    # A lookahead takes no characters, so overlapping occurrences are found, too.
    return re.compile(rf"(?<!{_LETTER})(?=({body})(?!{_LETTER}))", re.IGNORECASE)


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
        counts: receives the number of labels that were `MOVED` and `MERGED` into another.
    """
    if counts is None:
        counts = Counter()
    labels = [_label(item, answer, where) for item in items]
    taken: dict[int, Span] = {}
    # Right labels first, so that a wrong one cannot take their place.
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
        taken[index] = places[0]
        if free:
            taken[index] = free[0]
            counts[MOVED] += 1
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
    word = None
    if isinstance(item, Mapping):
        word = item.get("word")
    if not isinstance(word, str) or not word.strip():
        raise ValueError(
            f"{where}, column 'target_words': {item!r:.80} is not a label; expected "
            '{"word": text, "start": integer, "end": integer}.'
        )
    span = checked_span(
        [item.get("start"), item.get("end")], answer, where=f"{where}, column 'target_words', {word!r:.80}"
    )
    return word, span


def _places(word: str, answer: str, *, first: int) -> list[Span]:
    """Find the occurrences of a word, from `first` on and then before it; inside other words only if it has no other."""
    whole = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", answer)]
    places = whole or [match.span() for match in re.finditer(re.escape(word), answer)]
    return sorted(places, key=lambda span: (span[0] < first, span))
