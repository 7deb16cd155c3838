"""Membership inference: was a row in the training data? Scores per row, attack AUC and privleak.

Higher scores mean less likely a member. All are computed from one teacher-forced pass (`read_tokens`), except the
gradient norm, which is smaller on training data: it needs one backward pass per row, so it is the slowest attack and a
metric of its own. Every column `mia_NAME` on both sets gets an attack AUC and privleak.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.evaluation.columns import FORGET, HOLDOUT, AggregateColumn, Column
from atwu.evaluation.intervals import AggregateMetric, Estimate, ModelComparison, RowMetrics, combine
from atwu.evaluation.metric import Metric, MetricSetting
from atwu.evaluation.metrics.score_auroc import roc_area
from atwu.evaluation.metrics.truth_ratio import GUARD

if TYPE_CHECKING:
    from torch import Tensor, nn

    from atwu.evaluation.teacher_forced import TokenRow

_T = TypeVar("_T", float, FloatArray)
MembershipScores: TypeAlias = Sequence[float | None] | FloatArray

MIN_K_SHARE = 0.4
"""Share of tokens that Min-K% averages, as in open-unlearning."""
_SETS = FORGET, HOLDOUT
_CERTAIN = 1 - 1e-6
"""AUC from which that of the retain-only model counts as 1, by which privleak would divide by 0."""
_LEAST_VARIANCE = 1e-6
"""Stands for the variance of a certain prediction, which would be 0."""


def loss_score(logps: ArrayLike) -> float | None:
    """Mean negative log-likelihood (Yeom et al. 2018), in nats; None without tokens.

    Args:
        logps: Log-probability of every answer token **including the terminal token**, shape (tokens,).
    """
    values = np.asarray(logps, dtype=np.float64)
    if not values.size:
        return None
    return -float(values.mean())


def zlib_score(loss: float | None, text: str) -> float | None:
    """Loss per byte of zlib-compressed text (Carlini et al. 2021); None without a loss or for an empty text."""
    if loss is None or not text:
        return None
    return loss / len(zlib.compress(text.encode()))


def min_k(logps: ArrayLike, *, k: float = MIN_K_SHARE) -> float | None:
    """Min-K%: negated mean log-probability of the least likely tokens (Shi et al. 2024); None without tokens.

    Args:
        logps: Log-probability of every answer token **without the terminal token**, shape (tokens,).
        k: Share of tokens to average, in (0, 1], rounded down to at least one token; 1 gives the loss.
    """
    values = np.asarray(logps, dtype=np.float64)
    if not values.size:
        return None
    # Rounded down, but not to nothing, as in open-unlearning.
    count = max(1, math.floor(k * values.size))
    # Only the sum of the smallest is needed, not their order.
    return -float(np.partition(values, count - 1)[:count].mean())


def min_k_plus_plus(logps: ArrayLike, mu: ArrayLike, sigma2: ArrayLike, *, k: float = MIN_K_SHARE) -> float | None:
    """Min-K%++: Min-K% of the min_k_of_row log-probabilities `(log p_t - mu_t) / sigma_t` (Zhang et al. 2024).

    Args:
        logps: Log-probability of every answer token **without the terminal token**, shape (tokens,).
        mu: Mean log-probability under the next-token distribution, same shape.
        sigma2: Its variance, same shape; at least 1e-6 is used.
        k: As for `min_k`.
    """
    values, means, variances = (np.asarray(part, dtype=np.float64) for part in (logps, mu, sigma2))
    return min_k((values - means) / np.sqrt(np.maximum(variances, _LEAST_VARIANCE)), k=k)


def attack_auc(
    forget_scores: MembershipScores,
    holdout_scores: MembershipScores,
    weights: tuple[ArrayLike, ArrayLike] | None = None,
) -> float | FloatArray:
    """Probability that a holdout row scores higher than a forget row, ties count one half.

    Range [0, 1]: 1 means that forget rows are clearly recognized as members, 0.5 that the sets are indistinguishable,
    less than 0.5 that forget rows are less likely than holdout rows (over-unlearning). It is not a mean over rows.

    Args:
        forget_scores: One per forget row, higher means less likely a member; None or NaN if undefined.
        holdout_scores: The same for holdout rows.
        weights: Counts of each forget row and each holdout row (bootstrap draws), shapes (..., forget rows) and
            (..., holdout rows); scores are sorted once for all draws.

    Returns:
        The area under the ROC curve, or with weights one per draw, shape (...); NaN if a set has no scores.
    """
    forget, holdout = (np.asarray(side, dtype=np.float64) for side in (forget_scores, holdout_scores))
    known_forget, known_holdout = ~np.isnan(forget), ~np.isnan(holdout)
    if weights is None:
        return float(roc_area(forget[known_forget], holdout[known_holdout]))
    counts = np.asarray(weights[0])[..., known_forget], np.asarray(weights[1])[..., known_holdout]
    return roc_area(forget[known_forget], holdout[known_holdout], counts)


def privleak(auc: _T, auc_reference: _T | float = 0.5) -> _T:
    """Relative difference of `1 - AUC` from that of the retain-only model, in percent (MUSE, Shi et al. 2024).

    0 is ideal; negative: members are still recognized (under-unlearning); positive: over-unlearning. Large if the
    reference AUC is close to 1.

    Args:
        auc_reference: AUC of the retain-only model; 0.5 is expected of a model trained on neither set.
    """
    result: _T = 100 * ((1 - auc) - (1 - auc_reference)) / ((1 - auc_reference) + GUARD)
    return result


def score_column(attack: str, formula: Callable[..., Any]) -> Column:
    return Column(
        f"mia_{attack}",
        formula,
        attack.replace("_", " "),
        "membership score; higher means less likely a member",
        sets=(FORGET, HOLDOUT),
        direction="none",
        range=(None, None),
        shown=False,
    )


class Membership(Metric):
    name = "membership"
    about = "Membership inference attacks: loss, zlib, Min-K%, Min-K%++; with --retain-only also reference and privleak"
    cost = "one forward pass over both sets"
    needs = reads = (FORGET, HOLDOUT)
    needs_moments = True
    settings = (
        MetricSetting(
            "min_k", float, MIN_K_SHARE, "Share of least likely tokens for Min-K% and Min-K%++.", above=0, most=1
        ),
    )
    needs_reference = ("retain-only", "privleak and the reference attack")
    columns = (
        score_column("loss", loss_score),
        score_column("zlib", zlib_score),
        score_column("min_k", min_k),
        score_column("min_k_plus_plus", min_k_plus_plus),
        AggregateColumn(
            "mia_auc_{attack}",
            attack_auc,
            "attack AUC, {attack}",
            "AUC of this attack for forget against holdout rows; 0.5 is chance, 1 recognizes all forget rows",
            direction="none",
        ),
        AggregateColumn(
            "privleak_{attack}",
            privleak,
            "privleak, {attack}",
            "attack AUC relative to the retain-only model's, in percent; 0 is ideal (Shi et al. 2024)",
            direction="none",
            range=(-100.0, None),
            digits=1,
        ),
    )

    def record(self) -> None:
        k = self.session.config.min_k

        def min_k_of_row(row: Example, tokens: TokenRow) -> float | None:
            logps, entropy, variance = (
                np.asarray(part)[tokens.content] for part in (tokens.logps, tokens.entropy, tokens.variance)
            )
            # The mean of the log-probability under the next-token distribution is minus its entropy.
            return min_k_plus_plus(logps, -entropy, variance, k=k)

        self.record_tokens(
            mia_loss=lambda _, tokens: loss_score(tokens.logps),
            mia_zlib=lambda row, tokens: zlib_score(loss_score(tokens.logps), row.answer),
            mia_min_k=lambda _, tokens: min_k(tokens.logps[tokens.content], k=k),
            mia_min_k_plus_plus=min_k_of_row,
        )

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        other = sides.retain_only
        for metric in _attacks(sides.this):
            used = (FORGET, metric), (HOLDOUT, metric)
            area = attack_area(sides.this, _SETS, *(sides.this.values(*pair) for pair in used))
            attack = metric.removeprefix("mia_")
            yield f"mia_auc_{attack}", AggregateMetric(area, used)
            if other is None:
                # A model that was trained on neither set tells them apart by chance.
                ideal = Estimate(0.5, np.full_like(area.draws, 0.5))
            elif metric in _attacks(other):
                ideal = attack_area(sides.this, _SETS, *(other.values(*pair) for pair in used))
            else:
                continue  # the retain-only result lacks these scores
            # privleak is undefined in draws where the reference AUC is 1.
            ideal = replace(ideal, draws=np.where(ideal.draws < _CERTAIN, ideal.draws, np.nan))
            yield f"privleak_{attack}", AggregateMetric(combine(privleak, area, ideal), used)
        if other is not None and "mia_loss" in _attacks(sides.this) and "mia_loss" in _attacks(other):
            used = (FORGET, "mia_loss"), (HOLDOUT, "mia_loss")
            beyond = [sides.this.values(*pair) - other.values(*pair) for pair in used]
            yield "mia_auc_reference", AggregateMetric(attack_area(sides.this, _SETS, *beyond), used)


def _attacks(numbers: RowMetrics) -> list[str]:
    """Return the scores that a model has on both sets."""
    if FORGET not in numbers.rows:
        return []
    return [
        name
        for name in numbers.rows[FORGET].metrics
        if name.startswith("mia_") and all(numbers.has(split, name) for split in (FORGET, HOLDOUT))
    ]


def attack_area(numbers: RowMetrics, sets: tuple[str, str], members: FloatArray, others: FloatArray) -> Estimate:
    """Return the attack AUC of the scores of two sets, with rows resampled in each."""
    one, other = map(numbers.resampler_of, sets)
    draws = attack_auc(members, others, (one.weights, other.weights))
    return Estimate(float(attack_auc(members, others)), np.asarray(draws), min(one.clusters, other.clusters))


def mean_of_norms(gradients: Iterable[Tensor]) -> float:
    """Mean of the 2-norms of single tensors; not the norm of all tensors together."""
    import torch

    # In float16, the square of 256 is infinite already.
    norms = [
        torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
        for gradient in gradients
    ]
    return float(torch.stack([norm.cpu() for norm in norms]).mean())


def gradient_norms(model: nn.Module, rows: Sequence[EncodedRow], *, progress: str | None = None) -> list[float]:
    """Return `mean_of_norms` of dL/d(theta) for each row, with L the mean negative log-likelihood of the answer tokens.

    As in open-unlearning, the terminal token is not counted. Frozen parameters are included; integer (quantized) ones
    are not, and tied ones count once. Tensors that a row does not reach, such as idle experts, are left out of its
    mean. The gradients of one row are in memory at once, as large as the weights.

    Args:
        model: Causal language model, run in eval mode; `requires_grad` and train/eval mode are restored.
    """
    import torch

    from atwu._progress import progress_bar
    from atwu.data.pairing import collate_rows
    from atwu.modeling.forward import forward_tokens
    from atwu.modeling.layers import eval_mode

    # Quantized weights are integers and have no gradient.
    parameters = [parameter for parameter in model.parameters() if parameter.is_floating_point()]
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    results = []
    shown = progress_bar(rows, total=len(rows), desc=progress, unit="row", shown=progress is not None, leave=False)
    try:
        for parameter in frozen:
            parameter.requires_grad_()
        with eval_mode(model), torch.enable_grad():
            for row in shown:
                text = row.text_labels
                if set(text) == {IGNORE_INDEX}:  # an empty answer has its terminal token only
                    text = row.labels
                tensors = collate_rows([dataclasses.replace(row, labels=text, token_labels=None)])
                (out,) = forward_tokens(
                    model, [{name: tensor.to(parameters[0].device) for name, tensor in tensors.items()}]
                )
                # Not by `backward`, which would add to gradients that the caller may keep.
                gradients = torch.autograd.grad(-out.logps[out.mask].mean(), parameters, allow_unused=True)
                results.append(mean_of_norms(gradient for gradient in gradients if gradient is not None))
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
    return results


class GradientNorm(Metric):
    name = "gradient_norm"
    about = "Membership inference by gradient norm"
    cost = "one backward pass per row"
    needs = (FORGET, HOLDOUT)
    needs_plain_weights = True
    columns = (score_column("gradient_norm", mean_of_norms),)

    def prepare(self) -> None:
        self._norms = {
            split: gradient_norms(
                self.session.model,
                self.session.encode_set(split),
                progress=f"gradients of {split}" if self.session.progress else None,
            )
            for split in (FORGET, HOLDOUT)
        }

    def record(self) -> None:
        """Record the norms; `membership` derives the attack AUC from them."""
        for split, norms in self._norms.items():
            self.record_column(split, "mia_gradient_norm", norms)
