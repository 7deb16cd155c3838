"""Is a text varied or does it repeat itself? n-gram entropy, the fluency measure of RWKU (Jin et al. 2024)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Literal

Tokenizer = Literal["words", "nltk"]

_WEIGHTS = {2: 2 / 3, 3: 4 / 3}
"""Weight of each n; the terms are then averaged."""
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def repetitiveness(text: str, *, tokenizer: Tokenizer | Callable[[str], Sequence[str]] = "words") -> float:
    """`100 * mean(2/3 H_2, 4/3 H_3)` with H_n the entropy in bits of the text's n-grams.

    Higher is better: 0 for a text that says one thing over and over. Without any repetition a text of T words reaches
    `100 * (log2(T - 1) / 3 + 2 log2(T - 2) / 3)`, 698 for 128 words, so only texts cut at the same length compare; a short
    answer scores low however good it is. The number of a model is the plain mean over texts.

    Args:
        text: what a model said.
        tokenizer: `words` for `words` of this module; `nltk` for NLTK's word_tokenize, as in published numbers (contractions
            come apart); or a function from text to tokens.

    Returns:
        The score, >= 0; 0 for an empty text.

    Raises:
        LookupError: `nltk` without its sentence data.
        ValueError: an unknown tokenizer.
    """
    if callable(tokenizer):
        tokens = tokenizer(text)
    elif tokenizer == "words":
        tokens = words(text)
    elif tokenizer == "nltk":
        tokens = _nltk_words(text)
    else:
        raise ValueError(f"tokenizer must be 'words', 'nltk' or a function, got {tokenizer!r}.")
    return 100 * sum(weight * ngram_entropy(tokens, n) for n, weight in _WEIGHTS.items()) / len(_WEIGHTS)


def ngram_entropy(tokens: Sequence[str], n: int) -> float:
    """Entropy in bits of the relative frequencies of a text's n-grams; 0 for fewer than n tokens."""
    counts = Counter(tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))
    total = counts.total()
    return -sum(count / total * math.log2(count / total) for count in counts.values()) if len(counts) > 1 else 0.0


def words(text: str) -> list[str]:
    """Words, with apostrophes and hyphens inside them, and single punctuation marks; no case folding."""
    return _WORD.findall(text)


def _nltk_words(text: str) -> list[str]:
    try:
        tokens: list[str] = import_module("nltk").word_tokenize(text)
    except LookupError as error:
        raise LookupError(
            "NLTK's word_tokenize needs its sentence data; run: python -m nltk.downloader punkt_tab, "
            "or use tokenizer='words'."
        ) from error
    return tokens
