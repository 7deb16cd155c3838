"""Several processes of one run (torchrun): what the first one finds out, the others are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from atwu.training.config import TokenTrainingConfig

T = TypeVar("T")


def from_first(config: TokenTrainingConfig, make: Callable[[], T]) -> T:
    """What the first process makes, in every process."""
    if config.world_size == 1:
        return make()
    from accelerate.utils import broadcast_object_list

    made = [make() if config.process_index == 0 else None]
    broadcast_object_list(made)
    return made[0]  # type: ignore[return-value]
