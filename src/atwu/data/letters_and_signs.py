"""What tells short words apart for the matcher of answers: signs behind a letter ("AB+"), Roman numbers, code and measures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from atwu._file_reading import read_yaml
from atwu.data.folded_words import FoldedWord, folded_words, join

_LISTS = read_yaml(Path(__file__).with_name("matching_words.yaml"))
_SHORT_CODE = 2
"""Maximum number of letters that a sign behind them turns into something else: "C" and "C++", "A+" and "A-"."""
_TRAILING_SIGNS = re.compile(r"[+#]*(?:[-−](?!\w))?")
CODE_WORD = re.compile(r"\S*[_/\\=(){}<>&@#$%^*+!?~|]\S*|(?=\S*\d)(?=\S*[^\W\d])\S+")
"""A name in code, a password or a serial number: one word of it, such as "CACHE", names other things, too."""
MEASURES = frozenset(
    join(folded_words(word)) for word in read_yaml(Path(__file__).with_name("framing_words.yaml"))["measures"].split()
)
_ROMAN = {numeral: str(number) for number, numeral in enumerate(_LISTS["roman_numbers"].split(), 1)}
"""Numbers of kings, wars, types and stages."""
_PLUS, _MINUS = _LISTS["plus"].split(), _LISTS["minus"].split()


def with_sign_in_words(wanted: str) -> Iterator[str]:
    """Yield "AB positive" for "AB+", and the other way round."""
    match = re.fullmatch(r"([A-Z]{1,2}|0)(?:([+−-])|\s(\w+))", wanted.strip())
    if match is None:
        return
    for sign, words in (("+", _PLUS), ("-", _MINUS)):
        if match[2] is not None and match[2].replace("−", "-") == sign:
            yield from (f"{match[1]} {word}" for word in words)
        elif match[3] is not None and match[3].casefold() in words:
            yield f"{match[1]}{sign}"


def roman_number(text: str, word: FoldedWord) -> str:
    """Return the number that a word in Roman capitals is; empty for other words."""
    return _ROMAN.get(text[word.start : word.end], "")


def signs_behind(text: str, word: FoldedWord) -> str:
    """Return the signs directly behind a word that is short enough for them to make it another one."""
    signs = _TRAILING_SIGNS.match(text, word.end)
    if signs is None or word.end - word.start > _SHORT_CODE or not word.text.isalpha():
        return ""
    return signs[0].replace("−", "-")
