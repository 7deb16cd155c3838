"""What unlearning did to the language itself: perplexity of ordinary prose that comes with the package and trains nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from atwu.benchmarks.general_rows import general_text
from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import GENERAL_TEXT, AggregateColumn, Column
from atwu.evaluation.metric import Metric
from atwu.evaluation.metrics.memorization import answer_probability

if TYPE_CHECKING:
    from atwu.data.schema import Example
    from atwu.evaluation.row_statistics import AggregateMetric, ModelComparison


def perplexity(probability: FloatArray) -> FloatArray:
    """`1 / p` of the probability per token (geometric mean): among how many equally likely tokens the model seems to choose.

    Of the mean probability of several texts it is the harmonic mean of their perplexities, as in the verdict of a request.
    """
    return 1 / probability


class GeneralText(Metric):
    """Perplexity of the shipped texts."""

    name = "general_text"
    about = "perplexity of ordinary prose"
    cost = "one pass over eight short texts"
    columns = (
        Column(
            "general_text_probability",
            answer_probability,
            "probability",
            "probability per token of a text of ordinary prose (geometric mean)",
            sets=(GENERAL_TEXT,),
            shown=False,
        ),
        AggregateColumn(
            "general_text_perplexity",
            perplexity,
            "prose perplexity",
            "perplexity of ordinary prose that no run was shown: 1 / the mean probability per token of its texts",
            direction="down",
            range=(1.0, None),
            digits=1,
        ),
    )

    @classmethod
    def own_rows(cls) -> Mapping[str, Sequence[Example]]:
        """The texts."""
        return {GENERAL_TEXT: general_text()}

    def read(self) -> None:
        """Read them."""
        self.session.tokens(GENERAL_TEXT)

    def record(self) -> None:
        """One probability per text."""
        found = [answer_probability(row.logps) for row in self.session.tokens(GENERAL_TEXT)]
        self.record_column(GENERAL_TEXT, "general_text_probability", found)

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Over all texts."""
        if found := sides.this.derived(perplexity, ((GENERAL_TEXT, "general_text_probability"),)):
            yield "general_text_perplexity", found
