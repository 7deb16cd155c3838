"""TOFU's truth ratio (does the model prefer the true answer to false ones?), model utility and forget quality.

Computed from mean negative log-likelihoods of whole answers (terminal token included): the correct answer, paraphrased
if the row has a paraphrase, and several false ones. Forget quality is the p-value of a test against a retain-only
model, not FQ of `judge` (Maini et al. 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, RETAIN, AggregateColumn, Column, apply_known
from atwu.evaluation.intervals import AggregateMetric, Estimate, ModelComparison
from atwu.evaluation.metric import Metric

_T = TypeVar("_T", float, FloatArray)
Mean = Literal["geometric", "arithmetic"]
"""How the probabilities of false answers are averaged."""

GUARD = 1e-10
"""Added to denominators as in open-unlearning and published values."""


def truth_ratio(correct_loss: float, wrong_losses: Sequence[float], *, mean: Mean = "geometric") -> float:
    """Raw truth ratio R = w / (c + 1e-10): likelihood of false answers over that of the correct one.

    c = exp(-L_correct) and w = mean_j exp(-L_j). Range (0, inf): below 1 the model prefers the true answer.

    Args:
        correct_loss: Mean negative log-likelihood L of the correct answer, >= 0.
        wrong_losses: The same for each false answer, at least one, shape (answers,).
        mean: `geometric`: w = exp(-mean_j L_j) (open-unlearning, most published tables); `arithmetic`: mean of the
            probabilities (TOFU's own code), never smaller than the geometric one.
    """
    losses = np.asarray(wrong_losses, dtype=np.float64)
    # False answers are read apart from the sets, whose outputs are checked.
    if math.isnan(correct_loss) or bool(np.isnan(losses).any()):
        raise ValueError("a loss is NaN; check the model's weights.")
    if mean == "geometric":
        wrong_loss = float(losses.mean())
    else:  # the exponential of a large loss is 0, which has no logarithm
        wrong_loss = -math.log(max(float(np.exp(-losses).mean()), np.finfo(np.float64).tiny))
    return math.exp(-wrong_loss) / (math.exp(-correct_loss) + GUARD)


def scaled_truth_ratio(ratio: _T, split: str) -> _T:
    """Truth ratio scaled to [0, 1], so that 1 is the goal of the set.

    Forget set: `min(R, 1 / R)`, how indistinguishable true and false answers are. Other sets: `max(0, 1 - R)`, how
    clearly the true answer is preferred.
    """
    scaled: _T
    if split == FORGET:
        scaled = np.minimum(ratio, 1 / (ratio + GUARD))
    else:
        scaled = np.maximum(0.0, 1 - ratio)
    return scaled


def probability_with_options(probability: float, wrong_probabilities: Sequence[float]) -> float:
    """`p / (p + sum_j p_j + 1e-10)`: the correct answer's share among the options (TOFU's real authors, world facts).

    Range [0, 1]; higher is better on retain sets.
    """
    return probability / (sum((probability, *wrong_probabilities)) + GUARD)


def model_utility(values: Sequence[_T]) -> _T:
    """Model utility: harmonic mean, so that one value near 0 makes it small.

    TOFU averages nine means: probability, ROUGE-L recall and `scaled_truth_ratio` on the retain set, real authors and
    world facts. Range [0, 1], higher is better; 0 if any value is 0. Works elementwise on arrays such as bootstrap
    draws.
    """
    # Means first and draws behind them, so that one call computes the value or all draws of it.
    stacked = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        mean: _T = len(stacked) / (1 / stacked).sum(axis=0)  # 1 / 0 is inf, and n / inf is 0
    return mean


def forget_quality(unlearned_ratios: ArrayLike, retain_ratios: ArrayLike) -> tuple[float, float]:
    """Forget quality: two-sample Kolmogorov-Smirnov test of raw truth ratios against a retain-only model.

    The p-value decreases with the number of rows, so compare only equal forget sets. A bootstrap is not valid:
    resampling adds noise to both samples, which lowers the p-value.

    Returns:
        The largest distance between the two distribution functions, in [0, 1] (lower is better), and the p-value
        (higher is better; below 0.05 the two models differ significantly).
    """
    from scipy.stats import ks_2samp

    test: Any = ks_2samp(unlearned_ratios, retain_ratios)
    return float(test.statistic), float(test.pvalue)


class TruthRatio(Metric):
    name = "truth_ratio"
    about = "Truth ratio and model utility (TOFU); with --retain-only also forget quality (p-value)"
    cost = "one forward pass over every false answer"
    needs = (FORGET_OR_RETAIN,)
    needs_reference = ("retain-only", "forget quality")
    columns = (
        Column(
            "truth_ratio_raw",
            truth_ratio,
            "R",
            "raw truth ratio: likelihood of false answers over that of the true answer (geometric mean)",
            direction="none",
            range=(0.0, None),
            shown=False,
        ),
        Column(
            "truth_ratio_raw_arithmetic",
            truth_ratio,
            "R, arithmetic",
            "raw truth ratio with the arithmetic mean over false answers",
            direction="none",
            range=(0.0, None),
            shown=False,
        ),
        Column(
            "truth_ratio",
            scaled_truth_ratio,
            "truth ratio",
            "truth ratio: true against false answers, scaled so that 1 is the goal of the set (Maini et al. 2024)",
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
            "probability of the true answer, normalized over the true and the false answers",
        ),
        AggregateColumn(
            "model_utility",
            model_utility,
            "model utility",
            "harmonic mean of probability, ROUGE-L recall and truth ratio over retain sets (Maini et al. 2024)",
            direction="up",
        ),
        AggregateColumn(
            "forget_quality_p",
            forget_quality,
            "forget quality p",
            "forget quality: p-value of a KS test of truth ratios against the retain-only model (Maini et al. 2024)",
            direction="up",
        ),
        AggregateColumn(
            "forget_quality_log10_p",
            forget_quality,
            "forget quality log₁₀ p",
            "forget quality as log₁₀ of the p-value",
            direction="up",
            range=(-300.0, 0.0),
        ),
        AggregateColumn(
            "forget_quality_distance",
            forget_quality,
            "forget quality distance",
            "Kolmogorov-Smirnov distance of that test",
            direction="down",
        ),
    )

    def read(self) -> None:
        """Read the answers that are not part of the shared pass."""
        self._losses: dict[str, tuple[list[float | None], list[list[float]]]] = {}
        for split, rows in self.session.forget_and_retain_sets.items():
            if not any(row.wrong_answers for row in rows):
                continue
            # False answers follow the form of the paraphrase, so that is what they are compared with.
            with_paraphrase = [row for row in rows if row.wrong_answers and row.paraphrased_answer]
            others = [(row, row.paraphrased_answer) for row in with_paraphrase]
            others += [(row, text) for row in rows for text in row.wrong_answers]
            encoded = self.session.encode(
                [row.with_answer(answer or row.answer) for row, answer in others],
                what=f"{split}, other answers",
            )
            losses = iter(_loss(row.logps) for row in self.session.read(encoded, label=f"read {split}, other answers"))
            paraphrased = {row: next(losses) for row in with_paraphrase}
            correct = [
                paraphrased.get(row, _loss(tokens.logps)) if row.wrong_answers else None
                for row, tokens in zip(rows, self.session.tokens(split), strict=True)
            ]
            self._losses[split] = correct, [[next(losses) for _ in row.wrong_answers] for row in rows]

    def record(self) -> None:
        for split, (correct, wrong) in self._losses.items():
            # TOFU and open-unlearning average in different ways; published numbers exist of both.
            definitions: tuple[tuple[str, Mean], ...] = (("", "geometric"), ("_arithmetic", "arithmetic"))
            for suffix, mean in definitions:
                ratios = apply_known(partial(truth_ratio, mean=mean), correct, wrong)
                self.record_column(split, f"truth_ratio_raw{suffix}", ratios)
                scaled = apply_known(partial(scaled_truth_ratio, split=split), ratios)
                self.record_column(split, f"truth_ratio{suffix}", scaled)
            own = [float(np.exp(np.mean(row.logps))) for row in self.session.tokens(split)]
            others = [[float(np.exp(-loss)) for loss in losses] or None for losses in wrong]
            self.record_column(split, "probability_with_options", apply_known(probability_with_options, own, others))

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        parts: list[tuple[str, str]] = []
        for split in sides.this.rows:
            probability = "probability_with_options"
            if split == RETAIN:  # TOFU has options for real authors and world facts only
                probability = "probability"
            of_set = [(split, metric) for metric in (probability, "rouge_l_recall", "truth_ratio")]
            if split != FORGET and all(sides.this.has(*part) for part in of_set):
                parts += of_set
        utility = sides.this.apply_formula(lambda *means: model_utility(means), parts)
        if utility is not None:
            yield "model_utility", utility
        used = (FORGET, "truth_ratio_raw")
        if sides.retain_only is None or not (sides.this.has(*used) and sides.retain_only.has(*used)):
            return
        mine, other = (side.values(*used) for side in (sides.this, sides.retain_only))
        distance, p_value = forget_quality(mine[np.isfinite(mine)], other[np.isfinite(other)])
        # Below the smallest positive float, the logarithm is cut.
        numbers = {
            "forget_quality_p": p_value,
            "forget_quality_log10_p": float(np.log10(max(p_value, 1e-300))),
            "forget_quality_distance": distance,
        }
        for name, value in numbers.items():  # a p-value has no sampling interval
            yield name, AggregateMetric(Estimate(value, np.full(1, np.nan)), (used,))


def _loss(logps: FloatArray) -> float:
    return -float(np.mean(logps))
