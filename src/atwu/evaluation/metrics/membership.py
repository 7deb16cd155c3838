"""Was a row in the training data? Membership scores per row, and what an attack tells from forget and holdout rows.

Every score is signed so that higher means less likely a member, and is made of what one teacher-forced pass gave
(`read_tokens`); one more, the gradient norm, is a metric of its own. Whatever is recorded as `mia_NAME` on both sets gets
the area under its curve and privleak here.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from atwu.data.arrays import FloatArray, as_floats
from atwu.evaluation.columns import FORGET, HOLDOUT, AggregateColumn, Column
from atwu.evaluation.intervals import Estimate, combine
from atwu.evaluation.metric import Metric
from atwu.evaluation.metric_settings import MetricSetting
from atwu.evaluation.metrics.truth_ratio import GUARD

if TYPE_CHECKING:
    from atwu.evaluation.row_statistics import AggregateMetric, ModelComparison, RowMetrics
    from atwu.evaluation.teacher_forced import TokenRow

T = TypeVar("T", float, FloatArray)
MembershipScores: TypeAlias = Sequence[float | None] | FloatArray

MIN_K_SHARE = 0.4
"""Share of tokens that Min-K% looks at, as in open-unlearning."""
_CERTAIN = 1 - 1e-6
_LEAST_VARIANCE = 1e-6


def loss_score(logps: ArrayLike) -> float | None:
    """Mean negative log-likelihood (Yeom et al. 2018), in nats.

    Args:
        logps: log-probability of every answer token **including the terminal token**, shape (tokens,).

    Returns:
        The loss; None without tokens (skip the row).
    """
    values = np.asarray(logps, dtype=np.float64)
    return -float(values.mean()) if values.size else None


def zlib_score(loss: float | None, text: str) -> float | None:
    """Loss per byte of compressed text: how surprising a text is beyond its own redundancy (Carlini et al. 2021).

    Returns:
        The ratio; None without a loss or for an empty text.
    """
    return None if loss is None or not text else loss / len(zlib.compress(text.encode()))


def min_k(logps: ArrayLike, *, k: float = MIN_K_SHARE) -> float | None:
    """Min-K%: negated mean log-probability of the least likely tokens (Shi et al. 2024).

    Args:
        logps: log-probability of every answer token **without the terminal token**, shape (tokens,).
        k: share of the tokens that is averaged, in (0, 1], rounded down to at least one token; 1 is the loss.

    Returns:
        The score; None without tokens.
    """
    values = np.asarray(logps, dtype=np.float64)
    if not 0 < k <= 1:
        raise ValueError(f"k is a share of the tokens in (0, 1], got {k}.")
    if not values.size:
        return None
    count = max(1, math.floor(k * values.size))
    return -float(np.partition(values, count - 1)[:count].mean())


def min_k_plus_plus(logps: ArrayLike, mu: ArrayLike, sigma2: ArrayLike, *, k: float = MIN_K_SHARE) -> float | None:
    """Min-K%++: Min-K% of `(log p_t - mu_t) / sigma_t`, how a token fares among all that could stand there.

    Jingyang Zhang et al. 2024.

    Args:
        logps: log-probability of every answer token **without the terminal token**, shape (tokens,).
        mu: mean log-probability under the next-token distribution, same shape.
        sigma2: its variance, same shape; at least 1e-6 is taken.
        k: as for `min_k`.

    Returns:
        The score; None without tokens.
    """
    values, means, variances = (np.asarray(given, dtype=np.float64) for given in (logps, mu, sigma2))
    if not values.shape == means.shape == variances.shape:
        raise ValueError(f"one mu and sigma2 per token, got {len(means)} and {len(variances)} for {len(values)}.")
    return min_k((values - means) / np.sqrt(np.maximum(variances, _LEAST_VARIANCE)), k=k)


def attack_auc(
    forget_scores: MembershipScores,
    holdout_scores: MembershipScores,
    weights: tuple[ArrayLike, ArrayLike] | None = None,
) -> float | FloatArray:
    """Probability that a holdout row scores higher than a forget row, ties one half.

    Range [0, 1]: 1 means forget rows are still plainly recognised as members, .5 that the two cannot be told apart, less
    that the forget rows became less likely than text never seen (forgotten too hard). It is no mean over rows.

    Args:
        forget_scores: one per forget row, higher = less likely a member; None or NaN where there is none.
        holdout_scores: the same of rows never trained on.
        weights: how often each forget row and each holdout row counts (bootstrap draws), shapes (..., forget rows) and
            (..., holdout rows); scores are sorted once for all draws.

    Returns:
        The area under the ROC curve, or with weights one per draw, shape (...); NaN where there is no row on one side.
    """
    sides = [as_floats(part) for part in (forget_scores, holdout_scores)]
    there = [~np.isnan(side) for side in sides]
    counts = (
        [np.ones(side.shape) for side in sides] if weights is None else [np.asarray(part, float) for part in weights]
    )
    forget, holdout = (side[known] for side, known in zip(sides, there, strict=True))
    levels, place = np.unique(np.concatenate([forget, holdout]), return_inverse=True)
    at_forget = _per_level(counts[0][..., there[0]], place[: forget.size], levels.size)
    at_holdout = _per_level(counts[1][..., there[1]], place[forget.size :], levels.size)
    below = at_forget.cumsum(axis=-1) - at_forget / 2
    with np.errstate(invalid="ignore"):
        areas: FloatArray = (below * at_holdout).sum(-1) / (at_forget.sum(-1) * at_holdout.sum(-1))
    return float(areas) if weights is None else areas


def privleak(auc: T, auc_reference: T | float = 0.5) -> T:
    """Relative distance of `1 - AUC` from that of the retain model, in percent (MUSE, Shi et al. 2024).

    0 is ideal; negative: members are still recognised (unlearned too little); positive: too much. It is large where the
    reference AUC is near 1.

    Args:
        auc_reference: the same of the retain model; .5 is what a model that saw neither set is expected to give.
    """
    result: T = 100 * ((1 - auc) - (1 - auc_reference)) / ((1 - auc_reference) + GUARD)
    return result


def score_column(attack: str, formula: Callable[..., Any]) -> Column:
    """The column of a membership score, which only serves the attack on both sets."""
    return Column(
        f"mia_{attack}",
        formula,
        attack.replace("_", " "),
        "score of a membership attack; higher is less likely a member",
        sets=(FORGET, HOLDOUT),
        direction="none",
        range=(None, None),
        shown=False,
    )


class Membership(Metric):
    """Loss, zlib, min-k and min-k++ of the rows of the forget set (members) and of the holdout (never trained on)."""

    name = "membership"
    about = "loss, zlib, min-k, min-k++ and reference attacks"
    cost = "one pass over both sets"
    needs = (FORGET, HOLDOUT)
    needs_moments = True
    attack = True
    settings = (
        MetricSetting(
            "min_k", float, MIN_K_SHARE, "Share of least probable tokens in the min-k attacks.", above=0, most=1
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
            "how well this attack tells forget rows from unseen rows; 0.5: not at all",
            direction="none",
        ),
        AggregateColumn(
            "privleak_{attack}",
            privleak,
            "privleak, {attack}",
            "distance of that to the retain-only model's; 0 is ideal (Shi et al. 2024)",
            direction="none",
            range=(-100.0, None),
            digits=1,
        ),
    )

    def read(self) -> None:
        """Read both sets."""
        for split in (FORGET, HOLDOUT):
            self.session.tokens(split)

    def record(self) -> None:
        """Record the scores of every row."""
        k = self.session.config.min_k
        for split in (FORGET, HOLDOUT):
            rows = self.session.tokens(split)
            losses = [loss_score(row.logps) for row in rows]
            texts = [row.answer for row in self.session.sets[split]]
            self.record_column(split, "mia_loss", losses)
            self.record_column(
                split, "mia_zlib", [zlib_score(loss, text) for loss, text in zip(losses, texts, strict=True)]
            )
            self.record_column(split, "mia_min_k", [min_k(row.logps[row.content], k=k) for row in rows])
            self.record_column(split, "mia_min_k_plus_plus", [_min_k_plus_plus(row, k) for row in rows])

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Area under the curve of every attack, and privleak against the retain-only model (Shi et al. 2024)."""
        from atwu.evaluation.row_statistics import AggregateMetric

        other = sides.retain_only
        for metric in _attacks(sides.this):
            used = (FORGET, metric), (HOLDOUT, metric)
            area = _area(sides.this, *(sides.this.values(*pair) for pair in used))
            attack = metric.removeprefix("mia_")
            yield f"mia_auc_{attack}", AggregateMetric(area, used)
            if other is None:
                ideal = Estimate(0.5, np.full_like(area.draws, 0.5))
            elif metric in _attacks(other):
                ideal = _area(sides.this, *(other.values(*pair) for pair in used))
            else:
                continue  # it was given to be compared with, and does not have the scores
            # A draw in which the ideal itself is perfectly attacked says nothing about a distance to it.
            ideal = Estimate(ideal.value, np.where(ideal.draws < _CERTAIN, ideal.draws, np.nan))
            yield f"privleak_{attack}", AggregateMetric(combine(privleak, area, ideal), used)
        if other is not None and "mia_loss" in _attacks(sides.this) and "mia_loss" in _attacks(other):
            used = (FORGET, "mia_loss"), (HOLDOUT, "mia_loss")
            beyond = [sides.this.values(*pair) - other.values(*pair) for pair in used]
            yield "mia_auc_reference", AggregateMetric(_area(sides.this, *beyond), used)


def _min_k_plus_plus(row: TokenRow, k: float) -> float | None:
    assert row.variance is not None
    kept = row.content
    return min_k_plus_plus(row.logps[kept], -row.entropy[kept], row.variance[kept], k=k)


def _attacks(numbers: RowMetrics) -> list[str]:
    """Scores that a model has on both sets."""
    names = numbers.rows[FORGET].metrics if FORGET in numbers.rows else ()
    return [
        name
        for name in names
        if name.startswith("mia_") and all(numbers.has(split, name) for split in (FORGET, HOLDOUT))
    ]


def _area(numbers: RowMetrics, forget: FloatArray, holdout: FloatArray) -> Estimate:
    weights = numbers.weights(FORGET).weights, numbers.weights(HOLDOUT).weights
    return Estimate(float(attack_auc(forget, holdout)), np.asarray(attack_auc(forget, holdout, weights)))


def _per_level(weights: FloatArray, place: NDArray[np.int64], levels: int) -> FloatArray:
    """Total weight at each distinct score, shape (..., levels)."""
    order = np.argsort(place, kind="stable")
    present, starts = np.unique(place[order], return_index=True)
    totals = np.zeros((*weights.shape[:-1], levels))
    totals[..., present] = np.add.reduceat(weights[..., order], starts, axis=-1)
    return totals
