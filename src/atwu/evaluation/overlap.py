"""Overlap of a generated answer with the reference answer: ROUGE-L recall in the two flavours the papers report.

`rouge_l_recall` goes through `rouge_score` with the settings of open-unlearning: Porter stemmer, lower case, a-z and
0-9 only, so text in other scripts has no words for it. `official_rouge_l_recall` goes through `rouge` as RWKU does
(Jin et al. 2024): words are what stands between white space, upper case and punctuation count, nothing is stemmed.
The two agree on short lower-case ASCII words without repetition, and on little else; never mix them in one table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from atwu._extras import require

NO_ANSWER = "NOANSWER"
"""What RWKU scores in place of an empty answer."""


def rouge_l_recall(reference: str, output: str) -> float | None:
    """Share of the reference's words that the output repeats in order, LCS(reference, output) / words(reference).

    Range [0, 1]; lower is better on forget rows, higher on retain rows. Extra words in the output cost nothing, so
    a model that rambles can score high.

    Args:
        reference: the answer of the row.
        output: what the model generated, special tokens removed.

    Returns:
        The recall; 0.0 for an empty output; None when the reference has no word `rouge_score` can see (skip the row).
    """
    scorer = _scorer()
    if not scorer._tokenizer.tokenize(reference):
        return None
    return float(scorer.score(reference, output)["rougeL"].recall)


def official_rouge_l_recall(reference: str, output: str) -> float | None:
    """ROUGE-L recall as RWKU reports it (Jin et al. 2024), range [0, 1], by the package `rouge`.

    The package splits both texts into sentences at every full stop ("J. K." is two), joins the common subsequences of
    all pairs of sentences and counts distinct words: |words in any of them| / |distinct words of the reference|. So
    word order binds within a sentence only, and a repeated word counts once. Two of its quirks are evened out: a
    stretch of white space between full stops is no word, and a long text meets no recursion limit.

    Args:
        reference: the answer of the probe.
        output: what the model generated; one without any word is scored as `NO_ANSWER`.

    Returns:
        The recall; None when the reference has no word (skip the probe).

    Raises:
        ImportError: without the extra `rwku`.
    """
    wanted, said = _sentences(reference), _sentences(output) or NO_ANSWER
    if not wanted:
        return None
    with _recursion(wanted, said):
        return float(_official_scorer().get_scores(said, wanted)[0]["rouge-l"]["r"])


def _sentences(text: str) -> str:
    """The text without sentences that hold no word, which the package takes for a word of length 0."""
    return ".".join(part for part in text.split(".") if part.strip())


@contextmanager
def _recursion(*texts: str) -> Iterator[None]:
    """Room for one call per word: the package walks back through the common subsequence by recursion."""
    before = sys.getrecursionlimit()
    words = sum(len(text.split()) for text in texts)
    if words < before // 4:
        yield
        return
    try:
        sys.setrecursionlimit(before + 2 * words)
        yield
    finally:
        sys.setrecursionlimit(before)


@lru_cache(maxsize=1)
def _scorer() -> Any:
    """The scorer, built once: its import pulls in nltk (about a second)."""
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)


@lru_cache(maxsize=1)
def _official_scorer() -> Any:
    return require("rouge", extra="rwku").Rouge(metrics=["rouge-l"], stats=["r"])
