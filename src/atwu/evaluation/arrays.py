"""Numbers of rows, and of the tokens of one row, as arrays. Imported without NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

FloatArray: TypeAlias = "NDArray[np.float64]"
IntArray: TypeAlias = "NDArray[np.int64]"
OneRow: TypeAlias = "Sequence[float] | Sequence[int] | Sequence[bool] | Tensor | NDArray[Any]"
"""One number per token, one-dimensional."""


def as_floats(values: Sequence[float | None] | FloatArray) -> FloatArray:
    """Numbers with NaN for None, shape (rows,)."""
    import numpy as np

    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def one_row(values: OneRow, name: str) -> FloatArray:
    """Numbers of the tokens of one row as float64 on the CPU, shape (tokens,).

    Raises:
        ValueError: not one-dimensional, or a NaN.
    """
    import torch

    row = torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    if row.ndim != 1:
        raise ValueError(f"{name} must hold one row, shape (tokens,), got shape {tuple(row.shape)}; call per row.")
    if unknown := int(row.isnan().sum()):
        raise ValueError(f"{unknown} of {len(row)} {name} are NaN; check the model's weights.")
    array: FloatArray = row.numpy()
    return array
