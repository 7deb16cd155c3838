"""Overlap of a generated answer with the reference answer: ROUGE-L recall through the `rouge_score` package.

Settings are those of open-unlearning: Porter stemmer on, recall of the longest common subsequence.
`rouge_score` lower-cases and keeps only a-z and 0-9, so text in other scripts has no words for it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


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


@lru_cache(maxsize=1)
def _scorer() -> Any:
    """The scorer, built once: its import pulls in nltk (about a second)."""
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)
