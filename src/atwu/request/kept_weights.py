"""Copies of the trained weights in main memory: those of the original model, and of the best evaluation so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WEIGHTS_NAME = "controller.safetensors"
"""File in a checkpoint: the best weights so far."""


class KeptWeights:
    """Weights of a trainer's model and scorer that can be restored.

    Args:
        trainer: the trainer whose weights are kept.
        original: also keep the weights of the original model, which `scale_change` needs. A model with sharded weights cannot.
    """

    def __init__(self, trainer: Any, *, original: bool) -> None:
        self._trainer = trainer
        self._original: list[Tensor] = []
        if original and trainer.cleaning is not None:
            self._original = trainer.cleaning.original
        elif original:
            self._original = [_copy(tensor) for tensor in self._parameters()]
        self._best: list[Tensor] = []

    @property
    def scalable(self) -> bool:
        """Whether the change since the original model can be scaled."""
        return bool(self._original)

    @torch.no_grad()
    def keep(self) -> None:
        """Keep the weights as they are now, in place of those kept before."""
        if not self._best:
            self._best = [_copy(tensor) for tensor in self._all()]
        for kept, tensor in zip(self._best, self._all(), strict=True):
            kept.copy_(tensor)

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the kept weights and reset the state of the optimizer."""
        for parameter, kept in zip(self._all(), self._best, strict=True):
            parameter.copy_(kept)
        self._trainer.optimizer.state.clear()

    @torch.no_grad()
    def scale_change(self, scale: float) -> None:
        """Set the model to the original weights plus a share of the change to the kept ones."""
        # The kept weights end with those of the scorer, which are not scaled.
        for parameter, start, end in zip(self._parameters(), self._original, self._best, strict=False):
            parameter.copy_(torch.lerp(start, end, scale))

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        save_file({str(place): tensor for place, tensor in enumerate(self._best)}, folder / WEIGHTS_NAME)

    def load(self, folder: Path) -> None:
        from safetensors.torch import load_file

        weights = load_file(folder / WEIGHTS_NAME)
        self._best = [weights[str(place)] for place in range(len(weights))]

    def _parameters(self) -> list[Tensor]:
        return [parameter for parameter in self._trainer.model.parameters() if parameter.requires_grad]

    def _all(self) -> list[Tensor]:
        scorer = self._trainer.scorer
        return self._parameters() + ([] if scorer is None else list(scorer.parameters()))


def _copy(tensor: Tensor) -> Tensor:
    """Copy a tensor to main memory."""
    return tensor.detach().to("cpu", copy=True)
