"""Token weightings that are computed once, before training, and never change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from atwu.methods.component import FixedWeighting
from atwu.methods.component_inputs import FloatArray, PrecomputeContext, WeightingContext
from atwu.methods.component_options import setting

if TYPE_CHECKING:
    from torch import Tensor


class Labels(FixedWeighting):
    """1 on tokens that touch a forget span; also known from the batch itself."""

    formula = "1 on annotated secret tokens"
    needs = ("labels",)

    def precompute(self, given: PrecomputeContext) -> Iterable[FloatArray]:
        import numpy as np

        return (np.array(row.counted(row.token_labels or ()), dtype=np.float64) for row in given.forget)

    def weights(self, seen: WeightingContext) -> Tensor:
        if seen.forget.token_labels is None:
            raise ValueError("weighting 'labels' needs `token_labels` in the forget batch or `token_weights`.")
        return seen.forget.token_labels[:, 1:].to(seen.logps)


class LogprobMask(FixedWeighting):
    """SEUL's mask on the starting model (Wang et al. 2025b)."""

    formula = "1 where the starting model's log p is below the row's mean, gaps filled"
    needs = ("original_logps",)

    def precompute(self, given: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.masks import below_mean

        return [below_mean(logps) for logps in given.ref_logps()]


class ModelDifference(FixedWeighting):
    """SU-LLM's mask: where two auxiliary models disagree (Wan et al. 2025)."""

    formula = "1 where two auxiliary models disagree more than on average, widened to the left"
    needs = ("retain", "auxiliary_models")
    auxiliary_forget: str | None = setting(
        None, help="SU-LLM's model fine-tuned on the forget set; default: trained and cached"
    )
    auxiliary_retain: str | None = setting(
        None, help="SU-LLM's model fine-tuned on the retain set; default: trained and cached"
    )

    def check(self) -> None:
        """Whether both models are named.

        Raises:
            ValueError: one is missing.
        """
        for name in ("auxiliary_forget", "auxiliary_retain"):
            if getattr(self, name) is None:
                raise ValueError(
                    f"weighting 'model_difference' compares two auxiliary models; give {name}, the folder of one "
                    "(`atwu unlearn` trains both when they are not given)."
                )

    def precompute(self, given: PrecomputeContext) -> Iterable[FloatArray]:
        import numpy as np

        from atwu.methods.weightings.masks import differing

        pairs = zip(given.logps_of(str(self.auxiliary_forget)), given.logps_of(str(self.auxiliary_retain)), strict=True)
        return [differing(np.exp(first), np.exp(second)) for first, second in pairs]


class NgramDifference(FixedWeighting):
    """SU-Ngram's mask: where forget and retain trigrams disagree (Wan et al. 2025)."""

    formula = "1 where forget and retain n-grams disagree more than on average, widened to the left"
    needs = ("retain",)

    def precompute(self, given: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.masks import differing
        from atwu.methods.weightings.ngrams import NgramTable

        first, second = NgramTable.of(given.forget), NgramTable.of(given.retain or ())
        return (differing(first.probabilities(row), second.probabilities(row)) for row in given.forget)


class Nouns(FixedWeighting):
    """FUNDIAL's mask: tokens of noun phrases (Dong et al. 2025)."""

    formula = "1 on noun phrases"
    needs: ClassVar[Sequence[str]] = ("text", "noun_finder")
    noun_finder: str = setting(
        "en_core_web_sm", help="who finds nouns: a spaCy model, or simple (capitals and numbers)"
    )

    def check(self) -> None:
        """Whether the noun finder can be loaded.

        Raises:
            ImportError: spaCy or its model is missing.
        """
        from atwu.methods.weightings.nouns import noun_finder

        noun_finder(self.noun_finder)

    def precompute(self, given: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.nouns import noun_finder, noun_mask

        finder = noun_finder(self.noun_finder)
        return (noun_mask(row, answer, finder) for row, answer in zip(given.forget, given.answers, strict=True))


class Rarity(FixedWeighting):
    """Tokens that retain answers hardly use, by rank in the answer."""

    formula = "rank in the answer of -log(count among retain answers), lower for words of the prompt"
    needs = ("retain",)

    def precompute(self, given: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.rarity import TokenCounts

        counts = TokenCounts.of(given.retain or ())
        return (counts.rarity(row) for row in given.forget)


class WordRarity(FixedWeighting):
    """Words that hardly any subject's retain answers use and the question does not say, by rank in the answer."""

    formula = "rank in the answer of -(subjects whose retain answers have the word), lowest for words of the question"
    needs = ("retain", "text", "retain_text")

    def precompute(self, given: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.word_rarity import WordCounts

        counts = WordCounts.of(given.retain_text or ())
        return (counts.rarity(row, text) for row, text in zip(given.forget, given.forget_text or (), strict=True))


class RareNouns(Nouns):
    """Word rarity together with noun phrases that the question does not say."""

    formula = "mean of the ranks of word_rarity and of noun phrases without the question's words"
    needs = ("retain", "text", "retain_text", "noun_finder")

    def precompute(self, given: PrecomputeContext) -> Iterable[FloatArray]:
        from atwu.methods.weightings.word_rarity import WordCounts, question_words, rare_nouns, words_of_tokens

        counts, nouns = WordCounts.of(given.retain_text or ()), super().precompute(given)
        for row, text, mask in zip(given.forget, given.forget_text or (), nouns, strict=True):
            asked = question_words(text)
            told = [word in asked for word in words_of_tokens(row, text.answer)]
            yield rare_nouns(counts.rarity(row, text), mask, told)
