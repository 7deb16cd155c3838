"""Convert words given by the user to `forget_spans`, the labels for oracle weights and AUROC.

All functions work on characters, without a tokenizer, and return copies of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from atwu._file_reading import file_text
from atwu.data.schema import Example, merged_spans

_LETTER = r"[\w\u0300-\u036f]"  # a combining accent belongs to the previous letter
_INTERCHANGEABLE = dict.fromkeys("'’", "['’]") | dict.fromkeys("-\u2010\u2011", "[-\u2010\u2011]")


def label_words(examples: Iterable[Example], words: Sequence[str]) -> list[Example]:
    """Label every occurrence of words or phrases in the answers, ignoring case.

    A word matches if no letter, digit or underscore is next to it: "Orla" matches in "Orla's" and "Orla-Mae", not in
    "Orlando". Hyphens and apostrophes must match, where typographic variants are equal; white space within a phrase may
    differ.

    Args:
        examples: the rows; existing `forget_spans` are replaced.
        words: words or phrases, at least one.

    Returns:
        Copies with sorted, merged `forget_spans`; () if no word occurs.

    Raises:
        ValueError: no words, or a blank word.
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
    """Read words or phrases, one per line; blank lines, lines that start with `#` and duplicates are skipped.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8 text, or contains no word.
    """
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
    # A lookahead finds overlapping occurrences, too.
    return re.compile(rf"(?<!{_LETTER})(?=({body})(?!{_LETTER}))", re.IGNORECASE)
