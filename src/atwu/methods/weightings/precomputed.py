"""Token weightings that are computed once, before training: components; the formulas are in the other files here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from atwu.methods.component import FixedWeighting, setting
from atwu.methods.component_inputs import PrecomputeContext, WeightingContext

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.data.arrays import FloatArray


# NumPy and the formulas are imported where they are used, since a listing of methods reads this file too.


class Labels(FixedWeighting):
    """1 on tokens that overlap a forget span; the batch may contain these labels, too."""

    formula = "1 on labelled tokens"
    reads_labels = True

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        import numpy as np

        return (np.array(row.counted(row.token_labels or ()), dtype=np.float64) for row in context.forget)

    def weights(self, context: WeightingContext) -> Tensor:
        # Only `unlearning_loss` comes here; a run has these weights in the table of `precompute`.
        if context.forget.token_labels is None:
            raise ValueError("weighting 'labels' needs token_labels in the forget batch, or token_weights.")
        return context.forget.token_labels[:, 1:].to(context.logps)


class LogprobMask(FixedWeighting):
    """SEUL's mask from the original model (Wang et al. 2025b)."""

    formula = "1 where log p under π0 is below its mean in the row, gaps filled"
    reads_original = True

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.fixed_weights import below_mean

        return [below_mean(logps) for logps in context.ref_logps()]


class ModelDifference(FixedWeighting):
    """SU-LLM's mask: tokens on which two auxiliary models differ (Wan et al. 2025)."""

    formula = "1 where p of two auxiliary models differs more than the mean of the row, plus tokens to the left"
    reads_retain = reads_original = True
    auxiliary = {"auxiliary_forget": "forget", "auxiliary_retain": "retain"}  # noqa: RUF012
    auxiliary_forget: str | None = setting(
        None, help="folder of SU-LLM's model fine-tuned on the forget set; by default it is trained and cached"
    )
    auxiliary_retain: str | None = setting(
        None, help="folder of SU-LLM's model fine-tuned on the retain set; by default it is trained and cached"
    )

    def check(self) -> None:
        for name in self.auxiliary:
            if getattr(self, name) is None:
                raise ValueError(
                    f"weighting 'model_difference' compares two auxiliary models; set {name} to the folder of one "
                    "(`atwu unlearn` trains both if they are not set)."
                )

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        import numpy as np

        from atwu.methods.weightings.fixed_weights import differing

        pairs = zip(
            context.logps_of(str(self.auxiliary_forget)), context.logps_of(str(self.auxiliary_retain)), strict=True
        )
        return [differing(np.exp(first), np.exp(second)) for first, second in pairs]


class NgramDifference(FixedWeighting):
    """SU-Ngram's mask: tokens on which forget and retain trigrams differ (Wan et al. 2025)."""

    formula = "1 where p of forget and retain trigrams differs more than the mean of the row, plus tokens to the left"
    reads_retain = True

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.fixed_weights import NgramTable, differing

        first, second = NgramTable.of(context.forget), NgramTable.of(context.retain or ())
        return (differing(first.probabilities(row), second.probabilities(row)) for row in context.forget)


class Nouns(FixedWeighting):
    """FUNDIAL's mask: tokens of noun phrases (Dong et al. 2025)."""

    formula = "1 on tokens of noun phrases"
    noun_finder: str = setting(
        "en_core_web_sm", help="noun finder: name of a spaCy model, or simple (capitalized words and numbers)"
    )

    def needs(self) -> list[str]:
        return [*super().needs(), "a noun finder (--noun-finder: a spaCy model, or simple)"]

    def check(self) -> None:
        from atwu.methods.weightings.fixed_weights import noun_finder

        noun_finder(self.noun_finder)

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.fixed_weights import noun_finder, noun_mask

        finder = noun_finder(self.noun_finder)
        rows = zip(context.forget, context.forget_text, strict=True)
        return (noun_mask(row, text.answer, finder) for row, text in rows)


class KeyTokenWeights(FixedWeighting):
    """1 on key tokens: labelled words, or those that carry the fact by rule."""

    formula = "1 on key tokens: labelled words, else those that carry the fact by rule"

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        import numpy as np

        from atwu.data.encode import touches
        from atwu.data.fact import key_token_spans

        for row, text in zip(context.forget, context.forget_text, strict=True):
            spans = key_token_spans(text)
            marks = [float(touches(offset, spans, text.answer)) for offset in row.counted(row.answer_offsets)]
            yield np.array(marks, dtype=np.float64)


class Contrast(FixedWeighting):
    """How much a word depends on what the question is about (subject perturbation as in PERMU, Wang et al. 2025)."""

    formula = "mean of 1 on words of the fact and of the fall of log p under π0 with other subjects, as a share of the largest"
    reads_original = True
    is_score = False

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        import numpy as np

        from atwu.data.schema import overlap
        from atwu.methods.weightings.contrast import unit_weights

        if context.evidence is None:
            raise ValueError("weighting 'contrast' reads changed rows with the original model; none is at hand.")
        rows = zip(context.forget, context.forget_text, context.evidence(), strict=True)
        for row, text, evidence in rows:
            units, weights = unit_weights(text, evidence)
            values = []
            for offset in row.counted(row.answer_offsets):
                inside = [weight for unit, weight in zip(units, weights, strict=True) if overlap(offset, unit)]
                # A token may belong to two units; the heavier one counts.
                values.append(max(inside, default=0.0))
            yield np.array(values, dtype=np.float64)


class Rarity(FixedWeighting):
    """Rank within the answer of how rare each token is in the retain answers."""

    formula = "rank within the answer of -log(count in retain answers); lower for tokens of the prompt"
    reads_retain = True

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.fixed_weights import TokenCounts

        counts = TokenCounts.of(context.retain or ())
        return (counts.rarity(row) for row in context.forget)


class WordRarity(FixedWeighting):
    """Rank within the answer of how few subjects' retain answers contain the word; words of the question rank lowest."""

    formula = (
        "rank within the answer of -(subjects whose retain answers contain the word); lowest for words of the question"
    )
    reads_retain = True

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.fixed_weights import WordCounts

        counts = WordCounts.of(context.retain_text or ())
        return (counts.rarity(row, text) for row, text in zip(context.forget, context.forget_text, strict=True))


class RareNouns(Nouns):
    """Mean of word rarity and of noun phrases without words of the question, as ranks."""

    formula = "mean of word_rarity and the rank of noun phrases without words of the question"
    reads_retain = True

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.fixed_weights import WordCounts, question_words, rare_nouns, words_of_tokens

        counts, nouns = WordCounts.of(context.retain_text or ()), super().precompute(context)
        for row, text, mask in zip(context.forget, context.forget_text, nouns, strict=True):
            asked = question_words(text)
            in_question = [word in asked for word in words_of_tokens(row, text.answer)]
            yield rare_nouns(counts.rarity(row, text), mask, in_question)
