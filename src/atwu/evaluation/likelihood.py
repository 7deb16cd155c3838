"""Probability of an answer, from the log-probabilities of its tokens (TOFU's "Probability", Maini et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

_ROUNDING = 1e-3
"""Log-probabilities this little above zero are rounding (bfloat16 log-softmax); beyond it they are something else."""


def answer_probability(logps: Tensor | NDArray[Any] | Sequence[float]) -> float:
    """Geometric mean of the token probabilities of one answer, exp((1 / T) * sum_t log p_t).

    Range [0, 1]; lower is better on forget rows, higher on retain rows.

    Args:
        logps: natural log-probability of every answer token **including the terminal token**, shape (tokens,).
            Dividing by the length makes answers of different length comparable.

    Returns:
        The length-normalised probability; 0.0 if a token has probability zero.

    Raises:
        ValueError: if there is no token (leave such a row out of the mean), a value is NaN, a value is above zero, or
            the shape is not (tokens,).
    """
    values = torch.as_tensor(logps, dtype=torch.float64).detach().cpu()
    if values.ndim != 1:
        raise ValueError(f"logps must hold one answer, shape (tokens,), got shape {tuple(values.shape)}; call per row.")
    if values.numel() == 0:
        raise ValueError("logps is empty: an answer has at least its terminal token; leave empty rows out of the mean.")
    if bool(values.isnan().any()):
        raise ValueError(f"{int(values.isnan().sum())} of {values.numel()} logps are NaN; check the model's weights.")
    if float(values.max()) > _ROUNDING:
        raise ValueError(
            f"logps must be <= 0, got {float(values.max()):.4g}; pass log-probabilities, not logits or losses."
        )
    return min(1.0, math.exp(float(values.mean())))
