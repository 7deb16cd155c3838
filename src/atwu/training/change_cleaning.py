"""Clean the final change of the weights by the activations of retain rows, after any method.

SAGE (Zhang et al. 2026, arXiv 2606.18309) collects the inputs of each weight matrix on a few retain rows and solves in closed
form for a change that is close to the trained one and has little effect on these inputs. Only the abstract was at hand, so the
objective (`clean_change`), the inputs (those of the original model) and the number of rows are ours. Matrices of linear layers
in the decoder are cleaned; embeddings, output layer, norms, biases and experts keep their change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from atwu.benchmarks.base import evenly_spaced
from atwu.data.encode import EncodedRow
from atwu.modeling.layers import decoder_layers, eval_mode, full_precision, unwrap

PROXY_ROWS = 64
"""Retain rows whose inputs are collected, at most: some 2,000 tokens, several times the width of small models."""
MOMENT_BYTES = 1e9
"""Size of the moments that are collected in one pass over the rows, so that those of a large model are collected in several."""


def clean_change(change: Tensor, moment: Tensor, *, strength: float) -> Tensor:
    """Return the change of a weight matrix that minimizes

        |D' - D|^2 + strength * tr(D' M D'^T) / m,   that is   D' = D (I + strength * M / m)^-1

    With M = E[x x^T] of the inputs and m the mean energy per direction, tr(M) / width, the part of D along an eigenvector of
    energy e is divided by 1 + strength * e / m. For strength -> infinity the change has no effect on these inputs.

    Args:
        change: D, shape (outputs, width).
        moment: M, shape (width, width), symmetric and positive semidefinite.
        strength: >= 0; 0 returns the change. Larger keeps more of what the retain rows use, and forgets less.

    Returns:
        The cleaned change, same shape and dtype.
    """
    mean = moment.trace() / len(moment)
    if not strength or not mean:
        return change
    # In float64, since the energies of a language model's inputs differ by a factor of more than 1e6; on the CPU, since not
    # every device has it.
    energies, directions = torch.linalg.eigh((moment / mean).double().cpu())
    # Where no input points, rounding leaves energies below 0.
    suppressed = 1 - 1 / (1 + strength * energies.clamp(min=0))
    whole = change.double().cpu()
    cleaned: Tensor = (whole - (whole @ directions * suppressed) @ directions.T).to(change)
    return cleaned


def effect(change: Tensor, moment: Tensor) -> float:
    """Return `E |D x|^2 = tr(D M D^T)`, how far a change moves the outputs on the inputs of a moment."""
    return float(((change.float() @ moment.to(change.device).float()) * change.float()).sum())


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A trained weight matrix whose change is cleaned."""

    weight: Tensor
    reads: nn.Module
    """The layer with the same inputs."""
    original: Tensor | None
    """Its original value; None for the first matrix of an adapter."""
    transposed: bool = False
    """Whether it has the shape (width, outputs)."""
    second: Tensor | None = None
    """The second matrix of an adapter, whose product with the first one is the change of the layer."""

    @property
    def width(self) -> int:
        return int(self.weight.shape[0 if self.transposed else 1])

    def change(self) -> Tensor:
        """Return the change of the matrix; of an adapter, its first matrix."""
        weight = self.weight.detach().clone()
        if self.original is not None:
            weight -= self.original.to(weight)
        if self.transposed:
            return weight.T
        return weight

    def of_layer(self, change: Tensor) -> Tensor:
        """Return the change of the layer, up to the factor of an adapter."""
        if self.second is None:
            return change
        return self.second.detach() @ change

    def set_change(self, change: Tensor) -> None:
        value = change
        if self.transposed:
            value = change.T
        if self.original is not None:
            value = value + self.original.to(value)
        self.weight.copy_(value)


class ChangeCleaning:
    """Cleans the change of a model's weights since this object was created.

    Args:
        model: the model before its first training step.
        strength: as in `clean_change`.
        rows: the retain rows.

    Raises:
        ValueError: the model has adapters that were trained before, or no matrix to clean.
    """

    def __init__(self, model: nn.Module, *, strength: float, rows: Sequence[EncodedRow]) -> None:
        self._model, self._strength = model, strength
        self._rows = evenly_spaced(rows, PROXY_ROWS)
        self._trained = [weight for weight in model.parameters() if weight.requires_grad]
        self.original = [weight.detach().to("cpu", copy=True) for weight in self._trained]
        """The trained weights as they were, in main memory."""
        kept = {id(weight): original for weight, original in zip(self._trained, self.original, strict=True)}
        self._matrices = list(_find_trained_matrices(unwrap(model), kept))
        if not self._matrices:
            raise ValueError(
                "clean_change cleans trained weight matrices of linear layers, and this run trains none; leave it out."
            )

    @torch.no_grad()
    def clean(self, share: float = 1.0) -> tuple[float, float]:
        """Clean the change with a share of the strength.

        Returns:
            The share of the squared size of the change that is left, and that of its effect on the retain rows.
        """
        sizes, effects = [0.0, 0.0], [0.0, 0.0]
        for group in self._groups():
            moments = self._moments(group)
            for matrix, moment in zip(group, moments, strict=True):
                change = matrix.change()
                cleaned = clean_change(change, moment, strength=share * self._strength)
                matrix.set_change(cleaned)
                for place, part in enumerate((change, cleaned)):
                    whole = matrix.of_layer(part)
                    sizes[place] += float(whole.double().square().sum())
                    effects[place] += effect(whole, moment)
        # The bound is for a change of 0, of which there is no share.
        return sizes[1] / max(sizes[0], 1e-30), effects[1] / max(effects[0], 1e-30)

    def _groups(self) -> Iterator[list[_Matrix]]:
        """Yield the matrices in groups whose moments fit into `MOMENT_BYTES`."""
        group: list[_Matrix] = []
        size = 0
        for matrix in self._matrices:
            # A moment is a float32 matrix.
            needed = 4 * matrix.width**2
            if group and size + needed > MOMENT_BYTES:
                yield group
                group, size = [], 0
            group.append(matrix)
            size += needed
        yield group

    def _moments(self, matrices: Sequence[_Matrix]) -> list[Tensor]:
        """Return the mean of `x x^T` over the inputs x of each matrix in the original model, shape (width, width)."""
        device = self._trained[0].device
        moments = [torch.zeros(matrix.width, matrix.width, device=device) for matrix in matrices]

        def adds_to(moment: Tensor) -> Any:
            def add(module: nn.Module, args: tuple[Tensor, ...]) -> None:
                inputs = args[0].flatten(0, -2).float()
                # In place: the moments of a group already take what `MOMENT_BYTES` allows.
                moment.addmm_(inputs.T, inputs)

            return add

        with (
            self._original_weights(),
            eval_mode(self._model),
            full_precision(self._model),
            contextlib.ExitStack() as stack,
        ):
            for matrix, moment in zip(matrices, moments, strict=True):
                stack.callback(matrix.reads.register_forward_pre_hook(adds_to(moment)).remove)
            for row in self._rows:
                # One row at a time has no padding, whose inputs would count.
                unwrap(self._model)(input_ids=torch.tensor([row.input_ids], device=device), use_cache=False)
        tokens = sum(len(row.input_ids) for row in self._rows)
        return [moment / tokens for moment in moments]

    @contextlib.contextmanager
    def _original_weights(self) -> Iterator[None]:
        """Let the model have its original weights; adapters then have no effect."""
        # In main memory: the device may have no room for a third copy of the weights.
        kept = [weight.detach().to("cpu", copy=True) for weight in self._trained]
        try:
            for weight, original in zip(self._trained, self.original, strict=True):
                weight.copy_(original)
            yield
        finally:
            for weight, trained in zip(self._trained, kept, strict=True):
                weight.copy_(trained)


def _find_trained_matrices(model: nn.Module, original: dict[int, Tensor]) -> Iterator[_Matrix]:
    """Yield the trained matrices of linear decoder layers; of adapters those next to the inputs, since `B (A P) = (B A) P`.

    Raises:
        ValueError: an adapter has an effect already.
    """
    for name, module in decoder_layers(model).named_modules():
        if isinstance(module, nn.Linear | Conv1D) and id(module.weight) in original and "lora_" not in name:
            yield _Matrix(module.weight, module, original[id(module.weight)], isinstance(module, Conv1D))
        base = getattr(module, "base_layer", None)
        if not isinstance(base, nn.Linear | Conv1D):
            continue
        for adapter, first in getattr(module, "lora_A", {}).items():
            if id(first.weight) not in original:
                continue
            if bool(module.lora_B[adapter].weight.any()):
                raise ValueError(
                    "clean_change cleans the whole change of adapters, but these were trained before; merge them into the "
                    "model first."
                )
            yield _Matrix(first.weight, base, None, second=module.lora_B[adapter].weight)
