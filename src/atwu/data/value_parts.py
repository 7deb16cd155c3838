"""A value of a text, and what the patterns of several kinds of values share: where a value begins and ends, and the words of
`value_words.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from atwu._file_reading import read_yaml

ValueKind: TypeAlias = Literal[
    "date",
    "email",
    "iban",
    "ip",
    "money",
    "number",
    "ordinal",
    "percent",
    "phone",
    "quantity",
    "time",
    "url",
    "version",
    "year",
]


@dataclass(frozen=True, slots=True)
class Value:
    start: int
    end: int
    """Half-open character range."""
    kind: ValueKind
    canonical: str
    """The same for all spellings. Dates are ISO 8601, without the year "--05-12", without the day "1986-05"; times "14:30";
    money "USD 1240.5", quantities "5 mg", percentages "12.5 %", ordinals "3."."""


VALUE_WORDS: Mapping[str, Any] = read_yaml(Path(__file__).with_name("value_words.yaml"))

UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff"  # Japanese syllables
    "\u3400-\u9fff\uf900-\ufaff"  # Chinese characters
)
"""Characters of scripts without spaces between words, for a character class."""
GLUED = rf"[^\W_{UNSPACED}\uac00-\ud7af]"
"""A letter or digit that would continue a value; a Korean particle or Chinese character after a number does not."""
BEGIN, END = rf"(?<!{GLUED})", rf"(?!{GLUED})"


def split_names(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def any_of(names: Mapping[str, object] | list[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
