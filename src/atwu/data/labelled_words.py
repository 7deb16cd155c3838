"""Secret words given by the user, turned into `forget_spans`: an annotation for oracle weights and for AUROC.

Everything works on characters of the answer and knows no tokenizer; rows come back as copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from atwu._file_reading import file_text
from atwu.data.schema import Example, merged_spans

_LETTER = r"[\w\u0300-\u036f]"  # combining accents belong to the letter before them
_INTERCHANGEABLE = dict.fromkeys("'’", "['’]") | dict.fromkeys("-\u2010\u2011", "[-\u2010\u2011]")


def label_words(examples: Iterable[Example], words: Sequence[str]) -> list[Example]:
    """Mark every occurrence of given words or phrases in the answers, in any case.

    A word is found where no letter, digit or underscore touches it: "Orla" in "Orla's" and in "Orla-Mae", not in
    "Orlando". Hyphens and apostrophes inside a name must be there; their typographic forms count as equal, and so does
    any white space within a phrase.

    Args:
        examples: the rows; annotation they already have is replaced.
        words: words or phrases, at least one.

    Returns:
        Copies with sorted `forget_spans`, overlapping ones merged; () where no word occurs.

    Raises:
        ValueError: no words, or a blank one.
    """
    if isinstance(words, str):
        raise ValueError(f"words must be a list of words, got the text {words[:60]!r}; give [{words[:60]!r}].")
    patterns = [_pattern(word) for word in words]
    if not patterns:
        raise ValueError("no words were given; give at least one word or phrase to mark.")
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
    """Read words or phrases, one per line; blank lines and lines that start with `#` are skipped, repeats dropped.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8 text, or holds no word.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file; give a text file with one word or phrase per line.")
    words = [line.strip() for line in file_text(path).replace("\r", "\n").split("\n")]
    found = tuple(dict.fromkeys(word for word in words if word and not word.startswith("#")))
    if not found:
        raise ValueError(f"{path}: holds no words; write one word or phrase per line (lines with # are comments).")
    return found


def _pattern(word: str) -> re.Pattern[str]:
    parts = word.split()
    if not parts:
        raise ValueError(f"{word!r} is a blank word; remove it.")
    body = r"\s+".join("".join(_INTERCHANGEABLE.get(char, re.escape(char)) for char in part) for part in parts)
    # Inside a lookahead, so that occurrences which overlap each other are all found.
    return re.compile(rf"(?<!{_LETTER})(?=({body})(?!{_LETTER}))", re.IGNORECASE)
