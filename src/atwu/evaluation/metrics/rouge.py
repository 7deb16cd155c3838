"""Overlap of the greedy answer with the reference answer: ROUGE-L recall.

Goes through `rouge_score` with the settings of open-unlearning: Porter stemmer, lower case, a-z and 0-9 only, so text in
other scripts has no words for it. RWKU's own recall (see `rwku`) agrees with it on short lower-case ASCII words without
repetition, and on little else; never mix the two in one table.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from atwu.evaluation.columns import FORGET_OR_RETAIN, Column
from atwu.evaluation.generations import Prompt
from atwu.evaluation.metric import Metric
from atwu.evaluation.questions.prompts import question_prompt


def rouge_l_recall(reference: str, output: str) -> float | None:
    """Share of the reference's words that the output repeats in order, LCS(reference, output) / words(reference).

    Range [0, 1]; lower is better on forget rows, higher on retain rows. Extra words in the output cost nothing, so
    a model that rambles can score high.

    Returns:
        The recall; 0.0 for an empty output; None when the reference has no word `rouge_score` can see (skip the row).
    """
    scorer = _scorer()
    if not scorer._tokenizer.tokenize(reference):
        return None
    return float(scorer.score(reference, output)["rougeL"].recall)


class Rouge(Metric):
    """ROUGE-L recall of the answer to every row's own question; text rows have none and get no value."""

    name = "rouge"
    about = "ROUGE-L recall of the greedy answer"
    cost = "one answer per row"
    needs = (FORGET_OR_RETAIN,)
    needs_weights = False
    default = True
    uses = ("max_new_tokens",)
    columns = (
        Column(
            "rouge_l_recall",
            rouge_l_recall,
            "ROUGE-L",
            "share of the answer's words that the greedy answer repeats in order",
        ),
    )

    def prompts(self) -> Iterable[Prompt]:
        """Every row's own question."""
        rows = [row for rows in self.session.forget_and_retain_sets.values() for row in rows]
        return [question_prompt(row) for row in rows if row.messages]

    def record(self) -> None:
        """Record the recall, and what was said."""
        for split, rows in self.session.forget_and_retain_sets.items():
            said = [self.session.answer(question_prompt(row)) if row.messages else "" for row in rows]
            self.session.texts.setdefault(split, {})["answer"] = tuple(said)
            recalls = [
                rouge_l_recall(row.answer, text) if row.messages else None for row, text in zip(rows, said, strict=True)
            ]
            self.record_column(split, "rouge_l_recall", recalls)


@lru_cache(maxsize=1)
def _scorer() -> Any:
    """The scorer, built once: its import pulls in nltk (about a second). It stems every word once."""
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    stemmer = SimpleNamespace(stem=lru_cache(maxsize=1 << 16)(PorterStemmer().stem))
    # Left to make its own tokenizer, it logs that through absl, which then prints everybody's warnings its own way.
    return RougeScorer(["rougeL"], tokenizer=SimpleNamespace(tokenize=lambda text: tokenize(text, stemmer)))
