"""Perplexity of general text that ships with the package, to detect damage to language modeling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from atwu.data.arrays import FloatArray
from atwu.data.general_rows import general_text
from atwu.evaluation.columns import GENERAL_TEXT, AggregateColumn, Column
from atwu.evaluation.metric import Metric
from atwu.evaluation.metrics.memorization import answer_probability

if TYPE_CHECKING:
    from atwu.data.schema import Example


def perplexity(probability: FloatArray) -> FloatArray:
    """`1 / p` of the probability per token (geometric mean).

    For the mean probability of several texts, this is the harmonic mean of their perplexities.
    """
    return 1 / probability


class GeneralText(Metric):
    """Perplexity of the shipped general texts."""

    name = "general_text"
    about = "Perplexity of general text"
    cost = "one forward pass over eight short texts"
    columns = (
        Column(
            "general_text_probability",
            answer_probability,
            "probability",
            "probability per token of a general text (geometric mean)",
            sets=(GENERAL_TEXT,),
            shown=False,
        ),
        AggregateColumn(
            "general_text_perplexity",
            perplexity,
            "general text perplexity",
            "perplexity of general text not used in training: 1 / mean probability per token",
            direction="down",
            range=(1.0, None),
            digits=1,
            of=((GENERAL_TEXT, "general_text_probability"),),
        ),
    )

    @classmethod
    def own_rows(cls) -> Mapping[str, Sequence[Example]]:
        return {GENERAL_TEXT: general_text()}

    def read(self) -> None:
        self.session.tokens(GENERAL_TEXT)

    def record(self) -> None:
        found = [answer_probability(row.logps) for row in self.session.tokens(GENERAL_TEXT)]
        self.record_column(GENERAL_TEXT, "general_text_probability", found)
