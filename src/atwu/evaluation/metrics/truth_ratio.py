"""Does a model still prefer the true answer to false ones of the same form? TOFU's truth ratio and its two summary numbers.

Per row, from mean negative log-likelihoods of whole answers (terminal token included): the correct answer's, best in a
paraphrased wording, and those of several false ones. Model utility and forget quality are made of them: the latter is the
p-value of a test against a model that never saw the forget set, and not FQ of `judge` (Maini et al. 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, RETAIN, AggregateColumn, Column
from atwu.evaluation.intervals import Estimate
from atwu.evaluation.metric import Metric

if TYPE_CHECKING:
    from atwu.data.schema import Example
    from atwu.evaluation.row_statistics import AggregateMetric, ModelComparison

T = TypeVar("T", float, FloatArray)
Mean = Literal["geometric", "arithmetic"]
"""How the probabilities of the false answers are averaged."""

_ROUNDING = 1e-3
"""A probability this little above one is rounding (bfloat16 log-softmax)."""
GUARD = 1e-10
"""Added to denominators, as open-unlearning does; published numbers contain it."""


def truth_ratio(correct_loss: float, wrong_losses: Sequence[float], *, mean: Mean = "geometric") -> float:
    """Raw ratio R = w / (c + 1e-10) of the likelihood of false answers to that of the correct one.

    c = exp(-L_correct) and w = mean_j exp(-L_j). Range (0, inf): below 1 the model prefers the truth, 1 is indifference.

    Args:
        correct_loss: mean negative log-likelihood L of the correct answer, >= 0.
        wrong_losses: the same of each false answer, at least one, shape (answers,).
        mean: `geometric` takes w = exp(-mean_j L_j) (open-unlearning, most published tables); `arithmetic` the mean of
            the probabilities themselves (TOFU's own code). The arithmetic one is never smaller.

    Raises:
        ValueError: no false answer, a loss that is NaN, or an unknown mean.
    """
    losses = np.asarray(wrong_losses, dtype=np.float64)
    if math.isnan(correct_loss) or bool(np.isnan(losses).any()):
        raise ValueError("a loss is NaN; check the model's weights.")
    if not losses.size:
        raise ValueError("the truth ratio needs at least one false answer; leave rows without any out of the mean.")
    if mean == "geometric":
        wrong_loss = float(losses.mean())
    elif mean != "arithmetic":
        raise ValueError(f"mean must be 'geometric' or 'arithmetic', got {mean!r}.")
    else:
        wrong_loss = -math.log(max(float(np.exp(-losses).mean()), np.finfo(np.float64).tiny))
    return math.exp(-wrong_loss) / (math.exp(-correct_loss) + GUARD)


def scaled_truth_ratio(ratio: T, split: str) -> T:
    """The raw ratio R scaled to [0, 1], so that 1 is the goal of its set.

    On forget rows `min(R, 1 / R)`: how indistinguishable truth and falsehood are. On all others `max(0, 1 - R)`: how
    clearly the truth is preferred.
    """
    result: T = np.minimum(ratio, 1 / (ratio + GUARD)) if split == FORGET else np.maximum(0.0, 1 - ratio)
    return result


def probability_with_options(probability: float, wrong_probabilities: Sequence[float]) -> float:
    """`p / (p + sum_j p_j + 1e-10)`: the correct answer's share among its options (TOFU's real authors, world facts).

    Range [0, 1]; higher is better on rows to keep.

    Raises:
        ValueError: a number outside [0, 1].
    """
    values = (probability, *wrong_probabilities)
    if not all(0 <= value <= 1 + _ROUNDING for value in values):
        raise ValueError(f"probabilities must lie in [0, 1], got {values}; pass exp(-loss), not the loss.")
    return probability / (sum((probability, *wrong_probabilities)) + GUARD)


def model_utility(values: Sequence[T]) -> T:
    """Harmonic mean: one value near 0 pulls everything down, so that no ability can be traded for another.

    TOFU takes it over nine means: probability, ROUGE-L recall and `scaled_truth_ratio` on the retain set,
    real authors and world facts. Range [0, 1], higher is better; 0 as soon as any value is 0. Of arrays of equal shape
    (bootstrap draws) it is taken element by element.

    Raises:
        ValueError: no values, or a negative one.
    """
    stacked = np.asarray(values, dtype=np.float64)
    if not len(stacked) or bool((stacked < 0).any()):
        raise ValueError(f"model utility is a harmonic mean of numbers >= 0, at least one, got {values}.")
    with np.errstate(divide="ignore", over="ignore"):
        mean: T = len(stacked) / (1 / stacked).sum(axis=0)  # 1 / 0 is inf, and n / inf is 0
    return mean


def forget_quality(unlearned_ratios: ArrayLike, retain_ratios: ArrayLike) -> tuple[float, float]:
    """Can the unlearned model be told from one that never saw the forget set, by its raw truth ratios?

    The p-value of the same difference falls with the number of rows, so only equal forget sets compare. It is no mean over
    rows and suits no bootstrap: resampling adds noise of its own to both sides, which pushes it towards 0.

    Returns:
        Of the two-sample Kolmogorov-Smirnov test, the largest distance between the two distribution functions, in [0, 1]
        (lower is better), and the p-value (higher is better; below .05 the two models can be told apart).
    """
    from scipy.stats import ks_2samp

    test: Any = ks_2samp(unlearned_ratios, retain_ratios)
    return float(test.statistic), float(test.pvalue)


class TruthRatio(Metric):
    """The ratio of every row, its form for each set, and the probability of the answer among the options."""

    name = "truth_ratio"
    about = "truth ratio, model utility; forget quality given --retain-only"
    cost = "a pass over every false answer"
    needs = (FORGET_OR_RETAIN,)
    needs_reference = ("retain-only", "forget quality")
    columns = (
        Column(
            "truth_ratio_raw",
            truth_ratio,
            "R",
            "false answers over the true one",
            direction="none",
            range=(0.0, None),
            shown=False,
        ),
        Column(
            "truth_ratio_raw_arithmetic",
            truth_ratio,
            "R, arithmetic",
            "the same with the arithmetic mean over false answers",
            direction="none",
            range=(0.0, None),
            shown=False,
        ),
        Column(
            "truth_ratio",
            scaled_truth_ratio,
            "truth ratio",
            "is the true answer likelier than false ones, scaled so that the goal of the set is 1 (Maini et al. 2024)",
            direction="up",
        ),
        Column(
            "truth_ratio_arithmetic",
            scaled_truth_ratio,
            "truth ratio, arithmetic",
            "truth ratio with the arithmetic mean over false answers",
            direction="up",
        ),
        Column(
            "probability_with_options",
            probability_with_options,
            "probability, options",
            "probability of the true answer among it and the false ones",
        ),
        AggregateColumn(
            "model_utility",
            model_utility,
            "model utility",
            "harmonic mean of probability, ROUGE and truth ratio over what is to be kept (Maini et al. 2024)",
        ),
        AggregateColumn(
            "forget_quality_p",
            forget_quality,
            "forget quality p",
            "p-value: are the truth ratios those of a model that never saw the forget rows? (Maini et al. 2024)",
        ),
        AggregateColumn(
            "forget_quality_log10_p",
            forget_quality,
            "forget quality log₁₀ p",
            "the same as a power of ten",
            range=(-300.0, 0.0),
        ),
        AggregateColumn(
            "forget_quality_distance",
            forget_quality,
            "forget quality distance",
            "Kolmogorov-Smirnov distance behind that p-value",
            direction="down",
        ),
    )

    def read(self) -> None:
        """Read the answers that the shared pass does not hold."""
        self._losses: dict[str, tuple[list[float | None], list[list[float]]]] = {}
        for split, rows in self.session.forget_and_retain_sets.items():
            if not any(row.wrong_answers for row in rows):
                continue
            reworded = [row for row in rows if row.wrong_answers and row.paraphrased_answer]
            others = [_answered(row, row.paraphrased_answer) for row in reworded]
            others += [_answered(row, text) for row in rows for text in row.wrong_answers]
            losses = iter(self._read(split, others))
            better = {row: next(losses) for row in reworded}
            correct = [
                better.get(row, _loss(read.logps)) if row.wrong_answers else None
                for row, read in zip(rows, self.session.tokens(split), strict=True)
            ]
            self._losses[split] = correct, [[next(losses) for _ in row.wrong_answers] for row in rows]

    def _read(self, split: str, rows: list[Example]) -> list[float]:
        assert self.session.encoder is not None
        encoded = self.session.encoder.encode_rows(rows, what=f"{split}, other answers")
        self.session.warnings += encoded.warnings
        return [_loss(row.logps) for row in self.session.read(encoded.rows, label=f"read {split}, other answers")]

    def record(self) -> None:
        """Record the ratio in both definitions, and the probability among options."""
        for split, (correct, wrong) in self._losses.items():
            pairs = list(zip(correct, wrong, strict=True))
            definitions: tuple[tuple[str, Mean], ...] = (("", "geometric"), ("_arithmetic", "arithmetic"))
            for suffix, mean in definitions:
                ratios = [None if true is None else truth_ratio(true, false, mean=mean) for true, false in pairs]
                self.record_column(split, f"truth_ratio_raw{suffix}", ratios)
                formed = [None if ratio is None else scaled_truth_ratio(ratio, split) for ratio in ratios]
                self.record_column(split, f"truth_ratio{suffix}", formed)
            own = [float(np.exp(np.mean(row.logps))) for row in self.session.tokens(split)]
            among = [
                probability_with_options(p, [float(np.exp(-loss)) for loss in false]) if false else None
                for p, (_, false) in zip(own, pairs, strict=True)
            ]
            self.record_column(split, "probability_with_options", among)

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Model utility over the sets that are kept, and forget quality against the retain-only model."""
        yield from _utility(sides)
        yield from _forget_quality(sides)


def _utility(sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
    """Harmonic mean of probability, ROUGE and truth ratio over the sets that are kept."""
    used: list[tuple[str, str]] = []
    for split in sides.this.rows:
        if split == FORGET:
            continue
        probability = "probability" if split == RETAIN else "probability_with_options"
        parts = [(split, metric) for metric in (probability, "rouge_l_recall", "truth_ratio")]
        if all(sides.this.has(*part) for part in parts):
            used += parts
    if found := sides.this.derived(lambda *parts: model_utility(parts), used):
        yield "model_utility", found


def _forget_quality(sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
    """Are truth ratios those of a model that never saw the forget set?"""
    from atwu.evaluation.row_statistics import AggregateMetric

    used = (FORGET, "truth_ratio_raw")
    if sides.retain_only is None or not (sides.this.has(*used) and sides.retain_only.has(*used)):
        return
    mine, other = (side.values(*used) for side in (sides.this, sides.retain_only))
    distance, p_value = forget_quality(mine[np.isfinite(mine)], other[np.isfinite(other)])
    numbers = {
        "forget_quality_p": p_value,
        "forget_quality_log10_p": float(np.log10(max(p_value, 1e-300))),
        "forget_quality_distance": distance,
    }
    for name, value in numbers.items():  # a p-value has no sampling interval of its own
        yield name, AggregateMetric(Estimate(value, np.full(1, np.nan)), (used,))


def _answered(row: Example, answer: str | None) -> Example:
    return replace(row, answer=answer or row.answer, forget_spans=None)


def _loss(logps: FloatArray) -> float:
    return -float(np.mean(logps))
