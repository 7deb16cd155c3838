"""NumPy array types and conversions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


def as_floats(values: Sequence[float | None] | FloatArray) -> FloatArray:
    """Convert values to float64 with NaN for None, shape (rows,)."""
    return np.asarray(values, dtype=np.float64)
