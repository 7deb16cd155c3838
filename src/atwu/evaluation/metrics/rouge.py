"""ROUGE-L recall of the greedy answer against the reference answer.

Uses `rouge_score` with the settings of open-unlearning: Porter stemmer, lower case, only a-z and 0-9, so text in other
scripts has no words. RWKU's own recall (see `rwku_scores`) differs except on short ASCII texts without repetition; do
not mix the two in one table.
"""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from atwu._extras import without_init
from atwu.evaluation.columns import FORGET_OR_RETAIN, Column
from atwu.evaluation.metric import Metric


def rouge_l_recall(reference: str, output: str) -> float | None:
    """Share of the reference's words that the output contains in order: LCS(reference, output) / words(reference).

    Range [0, 1]; lower is better on the forget set, higher on retain sets. Extra words in the output cost nothing, so
    long answers can score high.

    Returns:
        The recall; 0.0 for an empty output; None if the reference has no word for `rouge_score` (skip the row).
    """
    scorer = _scorer(stemmed=True)
    if not scorer._tokenizer.tokenize(reference):
        return None
    return float(scorer.score(reference, output)["rougeL"].recall)


def rouge_l_f1(reference: str, output: str) -> float:
    """Harmonic mean of the shares of the reference's and of the output's words in their longest common subsequence.

    As in MUSE, without stemmer. Range [0, 1]; 0 if one of the two has no word.
    """
    return float(_scorer(stemmed=False).score(reference, output)["rougeL"].fmeasure)


class Rouge(Metric):
    name = "rouge"
    about = "ROUGE-L recall of the greedy answer"
    cost = "one answer per row"
    needs = (FORGET_OR_RETAIN,)
    needs_weights = False
    default = True
    asks = True
    uses = ("max_new_tokens",)
    columns = (
        Column(
            "rouge_l_recall",
            rouge_l_recall,
            "ROUGE-L",
            "ROUGE-L recall: share of the reference answer's words that the greedy answer contains in order",
        ),
    )

    def record(self) -> None:
        for split in self.session.forget_and_retain_sets:
            answers = tuple(text or "" for text in self.session.question_answers(split))
            self.session.rows[split].texts["answer"] = answers
            recalls = self.session.score_answers(split, lambda row, text: rouge_l_recall(row.answer, text))
            self.record_column(split, "rouge_l_recall", recalls)


@lru_cache(maxsize=2)
def _scorer(*, stemmed: bool) -> Any:
    """Build the scorer once; each word is stemmed once."""
    with without_init("nltk", "stem"):
        from nltk.stem.porter import PorterStemmer
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenize import tokenize

    stemmer = SimpleNamespace(stem=lru_cache(maxsize=1 << 16)(PorterStemmer().stem)) if stemmed else None
    # The scorer's own tokenizer logs through absl, which changes the format of all later warnings.
    return RougeScorer(["rougeL"], tokenizer=SimpleNamespace(tokenize=lambda text: tokenize(text, stemmer)))
