"""Numbers as arrays. Imported without NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FloatArray: TypeAlias = "NDArray[np.float64]"
IntArray: TypeAlias = "NDArray[np.int64]"


def as_floats(values: Sequence[float | None] | FloatArray) -> FloatArray:
    """Numbers with NaN for None, shape (rows,)."""
    import numpy as np

    return np.asarray(values, dtype=np.float64)
