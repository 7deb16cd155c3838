"""Whether an answer can be read: rules tell empty, broken and looping ones, the original model word salad.

Word salad is far less likely to the original model than the answers that it gave itself. The likelihood under the
measured model says nothing: a damaged model finds its gibberish likely.
"""

from __future__ import annotations

import re
import unicodedata
import zlib

import numpy as np

from atwu.data.arrays import FloatArray

MAX_REPETITION = 0.2
"""Share of word 4-grams that came before in a text, from which a paragraph counts as repeating itself."""
MIN_COMPRESSED = 0.3
"""Compressed size of a text over its size, below which it repeats itself: ordinary answers have .5 to 1, loops under .25."""
_LONG_ENOUGH = 120
"""Bytes from which compression says something about repetition."""
MARGIN = 3.5
"""Nats below the median of the original model's answers from which an answer is unreadable. Unusual but sensible texts were
at most 2.8 below, word salad 4.2 and more, shuffled words 3.2 to 5.4 (`benchmarks/results/gibberish.md`)."""
_PROSE = 0.75
"""Share of letters and white space from which a paragraph is prose rather than code or a pattern."""
_LOOP = re.compile(r"(\S.{0,6}?)\1{4,}|(\S.{7,79}?)\2{2,}|([^\W\d_]{4,12}?)\3{2,}", re.S)
"""The same few characters five times in a row, or a longer phrase or most of a word three times."""
_LINE = re.compile(r"[\W\d_]+")
_LETTERS = re.compile(r"[^\W\d_]+")


def is_broken(reply: str) -> bool:
    """Whether a reply is empty, holds the sign for undecodable bytes, or loops, in any script.

    Empty is a reply of punctuation and white space; an emoji, a formula or code is none of these.
    """
    if "\ufffd" in reply:
        return True
    # Symbols count as well, such as an emoji (So), a formula (Sm) or a price (Sc).
    visible = any(char.isalnum() or unicodedata.category(char) in ("So", "Sm", "Sc") for char in reply)
    return not visible or is_loop(reply)


def is_loop(reply: str) -> bool:
    """Whether a reply repeats itself: the same phrase or characters in a row, or a text that compresses to nothing.

    Repeated words apart from each other count within a paragraph only, since lines of lists and pieces of code share words.
    """
    # With a space at the end, the last repetition of a word looks like the others. Rows of dots and dashes are no loop.
    text = f"{reply.strip().lower()} "
    if any(not _LINE.fullmatch(loop[0]) for loop in _LOOP.finditer(text)):
        return True
    prose = "\n" not in reply.strip() and sum(char.isalpha() or char.isspace() for char in reply) >= _PROSE * len(reply)
    if prose and repeated_ngrams(reply) >= MAX_REPETITION:
        return True
    written = reply.encode()
    return len(written) >= _LONG_ENOUGH and len(zlib.compress(written, 9)) / len(written) < MIN_COMPRESSED


def repeated_ngrams(text: str) -> float:
    """Share of a text's word 4-grams that came before in it. Range [0, 1]; 0 for fewer than four words."""
    words = [word.lower() for word in _LETTERS.findall(text)]
    grams = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    if not grams:
        return 0.0
    return 1 - len(set(grams)) / len(grams)


def unreadable(reply: str, logp: float, own_logps: FloatArray) -> bool:
    """Whether an answer is broken, or far less likely to the original model than the answers it gave.

    Args:
        reply: the answer.
        logp: its log-probability under the original model (`OriginalReader.read`); NaN if it is short or was not read.
        own_logps: the same of the answers that the original model gave, shape (answers,); empty if they were not read.
    """
    if is_broken(reply):
        return True
    # The original model's short answers have no likelihood; without any, the rules alone decide.
    known = own_logps[np.isfinite(own_logps)]
    return bool(len(known)) and bool(logp < float(np.median(known)) - MARGIN)
