"""Whether the model still writes text: gibberish, answers that break off, refusals, perplexity of general text.

An answer is gibberish if it is empty, broken or a loop, which rules tell, or if it is far less likely to the original model
than the answers that model gave itself, which takes its weights. The likelihood under the measured model says nothing: a
damaged model finds its gibberish likely. The perplexity of shipped general text shows damage to language modeling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.general_rows import general_text
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET_OR_RETAIN, GENERAL_TEXT, AggregateColumn, Column
from atwu.evaluation.facts.readable import unreadable
from atwu.evaluation.metric import Metric
from atwu.evaluation.metrics.memorization import answer_probability
from atwu.judge.rules.refusals import is_broken_refusal, is_refusal

if TYPE_CHECKING:
    from atwu.evaluation.teacher_forced import OriginalReader


class Fluency(Metric):
    name = "fluency"
    about = "Gibberish and refusals: whether answers can be read, and whether the model answers at all"
    cost = "one answer per row; with the original model, one pass of it over these answers and its own"
    needs = (FORGET_OR_RETAIN,)
    needs_weights = False
    asks = True
    uses = ("max_new_tokens",)
    columns = (
        Column(
            "gibberish",
            unreadable,
            "gibberish",
            "share of answers that are empty, broken, loop, or are far less likely to the original model than the answers "
            "it gives (the last only if its weights are given)",
            direction="down",
        ),
        Column(
            "broken_refusal",
            is_broken_refusal,
            "broken off",
            "share of answers that begin a sentence and break it off to refuse",
            direction="down",
        ),
        Column("refusal", is_refusal, "refusals", "share of answers that decline to answer", direction="none"),
    )

    def record(self) -> None:
        self.record_answers(
            broken_refusal=lambda row, text: is_broken_refusal(text, row.question),
            refusal=lambda row, text: is_refusal(text, row.question),
        )
        for split, rows in self.session.forget_and_retain_sets.items():
            if any(row.messages for row in rows):
                self.record_column(split, "gibberish", self._gibberish(split))

    def _gibberish(self, split: str) -> list[bool | None]:
        """Return a value per row of a set; None without an answer."""
        answers = self.session.question_answers(split)
        texts = [answer or "" for answer in answers]
        # Without the original model, only the rules tell.
        logps, own_logps = np.full(len(texts), np.nan), np.zeros(0)
        reader = self.session.original_reader
        if reader is not None:
            logps, own_logps = reader.read(self.session.sets[split], texts), self._own_logps(reader, split)
        values: list[bool | None] = []
        for answer, logp in zip(answers, logps, strict=True):
            if answer is None:
                values.append(None)
            else:
                values.append(unreadable(answer, float(logp), own_logps))
        return values

    def _own_logps(self, reader: OriginalReader, split: str) -> FloatArray:
        """Return the likelihood of the answers that the original model gave, or of the true answers without its result."""
        original, rows = self.session.original, self.session.sets[split]
        own: Sequence[str] = ()
        if original is not None and split in original.rows:
            own = original.rows[split].texts.get("answer", ())
        # A result of other rows, or one without answers, is no measure of this set.
        if len(own) != len(rows):
            own = [row.answer for row in rows]
        return reader.read(rows, own)


def perplexity(probability: FloatArray) -> FloatArray:
    """`1 / p` of the probability per token (geometric mean).

    For the mean probability of several texts, this is the harmonic mean of their perplexities.
    """
    return 1 / probability


class GeneralText(Metric):
    name = "general_text"
    about = "Perplexity of general text"
    cost = "one forward pass over eight short texts"
    reads = (GENERAL_TEXT,)
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
    def own_rows(cls, config: SimpleNamespace) -> Mapping[str, Sequence[Example]]:
        return {GENERAL_TEXT: general_text()}

    def record(self) -> None:
        self.record_tokens(general_text_probability=lambda _, tokens: answer_probability(tokens.logps))
