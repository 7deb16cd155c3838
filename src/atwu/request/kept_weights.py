"""Copies of the trained weights in main memory: those of the best evaluation so far, and the original ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WEIGHTS_NAME = "controller.safetensors"
"""File in a checkpoint: the best weights so far."""


class KeptWeights:
    """Weights of a trainer's model and scorer that can be restored."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._best: list[Tensor] = []
        self._original: list[Tensor] = []

    def keep_original(self) -> None:
        """Keep the weights from before training; a run that continues has not loaded its checkpoint yet."""
        self._original = [_copy(parameter) for parameter in self._trained()]

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
    def shrink_change(self, factor: float) -> None:
        """Leave in the model this part of the change from the original weights to the kept ones; a scorer stays."""
        trained = self._trained()
        for parameter, kept, original in zip(trained, self._best[: len(trained)], self._original, strict=True):
            parameter.copy_(original + factor * (kept - original))

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        save_file({str(place): tensor for place, tensor in enumerate(self._best)}, folder / WEIGHTS_NAME)

    def load(self, folder: Path) -> None:
        from safetensors.torch import load_file

        weights = load_file(folder / WEIGHTS_NAME)
        self._best = [weights[str(place)] for place in range(len(weights))]

    def _trained(self) -> list[Tensor]:
        return [parameter for parameter in self._trainer.model.parameters() if parameter.requires_grad]

    def _all(self) -> list[Tensor]:
        scorer = self._trainer.scorer
        if scorer is None:
            return self._trained()
        return [*self._trained(), *scorer.parameters()]


def _copy(tensor: Tensor) -> Tensor:
    """Copy a tensor to main memory."""
    return tensor.detach().to("cpu", copy=True)
