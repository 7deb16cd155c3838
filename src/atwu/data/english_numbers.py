"""Numbers that are written in English words: "twenty-one", "nineteen ninety", "three hundred and five", "the third".

The values of a text (`atwu.data.values`) and the rules of the offline judge read number words with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from atwu._file_reading import read_yaml

_ENGLISH = read_yaml(Path(__file__).with_name("value_words.yaml"))["english_numbers"]
_SMALL_WORDS, _TENS = (_ENGLISH[name].split() for name in ("small", "tens"))
_SMALL = {word: value for value, word in enumerate(_SMALL_WORDS)}
_SMALL |= {word: 10 * value for value, word in enumerate(_TENS, 2)}
_ORDINALS = {word.removesuffix("y") + ("ieth" if word in _TENS else "th"): value for word, value in _SMALL.items()}
_ORDINALS |= {"first": 1, "second": 2, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_WORD = "|".join(sorted((*_SMALL, *_SCALES, *_ORDINALS), key=len, reverse=True))
_RUN = re.compile(rf"\b(?:{_WORD})(?:(?:\s+and\s+|[\s-]+)(?:{_WORD}))*\b", re.IGNORECASE)
_PART = re.compile(r"[^\s-]+")


@dataclass(frozen=True, slots=True)
class WrittenNumber:
    start: int
    end: int
    """Half-open character range."""
    value: int
    ordinal: bool
    """Whether its last word is an ordinal, such as "third"."""


def number_runs(text: str) -> list[list[WrittenNumber]]:
    """Find the sequences of number words in a text; one sequence may hold several numbers ("nine and seventeen")."""
    return [_numbers_of(match) for match in _RUN.finditer(text)]


def _numbers_of(run: re.Match[str]) -> list[WrittenNumber]:
    numbers: list[WrittenNumber] = []
    total, current, last = 0, 0, ""
    start = end = run.start()
    ordinal = False

    def close() -> None:
        nonlocal total, current, ordinal
        numbers.append(WrittenNumber(start, end, total + current, ordinal))
        total, current, ordinal = 0, 0, False

    for part in _PART.finditer(run[0]):
        word, begin = part[0].lower(), run.start() + part.start()
        if word == "and":
            if last not in ("hundred", "scale"):
                close()
                last = ""
            continue
        if not last:
            start = begin
        if word == "hundred":
            if current >= 100:
                close()
                start = begin
            current, last = (current or 1) * 100, "hundred"
        elif word in _SCALES:
            total, current, last = total + (current or 1) * _SCALES[word], 0, "scale"
        else:
            value = _SMALL.get(word, _ORDINALS.get(word, 0))
            kind = "ten"
            if value < 10:
                kind = "one"
            elif value < 20:
                kind = "teen"
            if last in ("hundred", "scale") or (last == "ten" and kind == "one"):
                current += value
            elif last in ("teen", "ten", "sum") and kind != "one" and total == 0 and 10 <= current < 100:
                current = current * 100 + value  # nineteen ninety
            else:
                if last:
                    close()
                start, total, current = begin, 0, value
            last = "sum" if last == "ten" and kind == "one" else kind
            ordinal = word in _ORDINALS
        end = run.start() + part.end()
    if last:
        close()
    return numbers
