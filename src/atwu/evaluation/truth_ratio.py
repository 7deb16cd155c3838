"""Does a model still prefer the true answer to false ones of the same form? Truth ratio and its relatives (TOFU).

Per row, from mean negative log-likelihoods of whole answers (terminal token included): the correct answer's, best in a
paraphrased wording, and those of several false ones. Every aggregate is the plain mean over rows (Maini et al. 2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", float, NDArray[np.float64])

Mean = Literal["geometric", "arithmetic"]
"""How the probabilities of the false answers are averaged."""

_GUARD = 1e-10
"""Added to denominators, as open-unlearning does; published numbers contain it."""
_ROUNDING = 1e-3
"""A probability this little above one is rounding (bfloat16 log-softmax)."""


def truth_ratio(correct_loss: float, wrong_losses: Sequence[float], *, mean: Mean = "geometric") -> float:
    """Raw ratio R = w / (c + 1e-10) of the likelihood of false answers to that of the correct one.

    c = exp(-L_correct) and w = mean_j exp(-L_j). Range (0, inf): below 1 the model prefers the truth, 1 is indifference.

    Args:
        correct_loss: mean negative log-likelihood L of the correct answer, >= 0.
        wrong_losses: the same of each false answer, shape (answers,).
        mean: `geometric` takes w = exp(-mean_j L_j) (open-unlearning, most published tables); `arithmetic` the mean of
            the probabilities themselves (TOFU's own code). The arithmetic one is never smaller.

    Raises:
        ValueError: no false answer, a NaN, or an unknown mean.
    """
    return math.exp(-_wrong_loss(correct_loss, wrong_losses, mean)) / (math.exp(-correct_loss) + _GUARD)


def forget_form(ratio: T) -> T:
    """`min(R, 1 / R)`: how indistinguishable truth and falsehood are, in [0, 1]; higher is better on forget rows.

    Args:
        ratio: R of one row, or of many.
    """
    result: T = np.minimum(ratio, 1 / (ratio + _GUARD))
    return result


def retain_form(ratio: T) -> T:
    """`max(0, 1 - R)`: how clearly the truth is preferred, in [0, 1]; higher is better on rows to keep.

    Args:
        ratio: R of one row, or of many.
    """
    result: T = np.maximum(0.0, 1 - ratio)
    return result


def prob_mean(correct_loss: float, wrong_losses: Sequence[float], *, mean: Mean = "geometric") -> float:
    """`c / (c + w)`: share of the likelihood that the correct answer holds, in [0, 1], .5 is indifference.

    Lower is better on forget rows, higher on rows to keep. Arguments as for `truth_ratio`.
    """
    return 1 / (1 + math.exp(min(700.0, correct_loss - _wrong_loss(correct_loss, wrong_losses, mean))))


def probability_with_options(probability: float, wrong_probabilities: Sequence[float]) -> float:
    """`p / (p + sum_j p_j + 1e-10)`: the correct answer's share among its options (TOFU's real authors, world facts).

    Range [0, 1]; higher is better on rows to keep.

    Args:
        probability: length-normalised probability of the correct answer, in [0, 1].
        wrong_probabilities: the same of each false option, shape (options,).

    Raises:
        ValueError: a number outside [0, 1].
    """
    values = (probability, *wrong_probabilities)
    if not all(0 <= value <= 1 + _ROUNDING for value in values):
        raise ValueError(f"probabilities must lie in [0, 1], got {values}; pass exp(-loss), not the loss.")
    return probability / (sum(values) + _GUARD)


def _wrong_loss(correct_loss: float, wrong_losses: Sequence[float], mean: Mean) -> float:
    """The loss an answer as likely as the false ones on average would have."""
    losses = np.asarray(wrong_losses, dtype=np.float64)
    if losses.ndim != 1 or losses.size == 0:
        raise ValueError("the truth ratio needs at least one false answer; leave rows without any out of the mean.")
    if math.isnan(correct_loss) or bool(np.isnan(losses).any()):
        raise ValueError("a loss is NaN; check the model's weights.")
    if mean == "geometric":
        return float(losses.mean())
    if mean == "arithmetic":
        return -math.log(max(float(np.exp(-losses).mean()), np.finfo(np.float64).tiny))
    raise ValueError(f"mean must be 'geometric' or 'arithmetic', got {mean!r}.")
