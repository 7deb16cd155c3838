"""NumPy array types, and values of rows of which some are undefined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T")
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


def as_floats(values: Sequence[float | None] | FloatArray) -> FloatArray:
    """Convert values to float64 with NaN for None, shape (rows,)."""
    return np.asarray(values, dtype=np.float64)


def apply_known(formula: Callable[..., _T | None], *columns: Iterable[Any]) -> list[_T | None]:
    """Apply a formula row by row to columns of equal length; None where a row lacks one of its inputs."""
    rows = zip(*columns, strict=True)
    return [None if any(value is None for value in row) else formula(*row) for row in rows]
