"""Estimate the memory of a training run, item by item, before any weights are read."""

from __future__ import annotations

import heapq
import itertools
from array import array
from dataclasses import dataclass

import torch

from atwu.modeling.batches import RowLengths, shared_prefix
from atwu.modeling.footprint import Footprint, footprint
from atwu.training.config import TokenTrainingConfig, UnlearnConfig
from atwu.training.load_to_train import ModelSource, model_without_weights, with_adapters
from atwu.training.training_rows import UnlearningRows

PROCESS = {"cpu": 0.6e9, "cuda": 0.5e9}
"""Base memory of Python and its libraries; on a GPU, of the driver's context."""
BLOCKS = 0.2e9
"""Logits and derived tensors, computed in blocks of bounded size, and the allocator's reserve (measured)."""
DECODED_TOKENS = 4096
"""Tokens generated or evaluated at once."""
_BITS = {"4bit": 0.516, "8bit": 1.0}
"""Bytes per weight including its scales (NF4 with double quantization: Dettmers et al. 2023)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the training device, by purpose. Not all are held at the same time: see `peak`."""

    process: float
    weights: float
    copies: float
    """Copies: output layer or model as the reference, weights while they are perturbed, and those that a controller keeps."""
    optimizer: float
    gradients: float
    activations: float
    """At the end of a step's forward pass, including the output layer's blocks."""
    turning: float
    """Maximum of activations plus gradients: activations are freed while gradients are created."""
    evaluation: float
    """Keys, values and logits during generation."""

    @property
    def peak(self) -> float:
        held = self.process + self.weights + self.copies + self.optimizer
        return held + max(self.turning, self.evaluation)


def measure_footprint(
    source: ModelSource, config: TokenTrainingConfig, lengths: RowLengths, *, device: str
) -> Footprint:
    """Measure a model's footprint on a kind of device, with its adapters and the rows of one batch
    (`longest_batch`)."""
    plain = model_without_weights(source.architecture(), trust_remote_code=source.trust_remote_code)
    plain = plain.to(torch.bfloat16 if config.quantize else _dtype(source))
    autocast = torch.bfloat16 if config.bf16 else torch.float16 if config.fp16 else None
    return footprint(with_adapters(plain, config), lengths, autocast=autocast, device=device)


def memory(model: Footprint, config: TokenTrainingConfig, *, device: str) -> Memory:
    weights = float(model.weights)
    if config.quantize is not None:
        weights -= model.layers_only * (1 - _BITS[config.quantize] / 2)  # these are counted with 2 bytes
    copies, compared = 0.0, 0.0
    if isinstance(config, UnlearnConfig):
        needs = set(config.recipe().needs)
        if "reference_distributions" in needs:
            half = config.bf16 or config.fp16
            # Autocast converts the output layer and that of the reference; the gradient adds products of its size.
            compared = model.embedding * (half + (0 if config.lora_r else 0.5 if half else 1))
        if config.reference == "model" and any(need.startswith("reference_") for need in needs):
            copies += weights
        elif "reference_distributions" in needs and not config.lora_r:
            copies += model.embedding
        if config.perturbs_weights:  # original weights, perturbation, and gradient at the perturbed weights
            copies += 3 * model.trained
        if config.rectify_gradient:  # retain gradient, its moving average, and the forget gradient
            copies += 3 * model.trained
    optimizer = str(getattr(config.optim, "value", config.optim))
    moments = 0.0 if any(name in optimizer for name in ("paged", "sgd", "adafactor")) else 2.0 * model.trained
    if moments and "8bit" in optimizer:
        moments = 2.05 * model.trained_parameters  # one byte per moment, plus scales
    activations = float(model.kept) * (2 if isinstance(config, UnlearnConfig) and config.perturbs_weights else 1)
    if config.activation_checkpointing and model.of_layers:
        activations += model.inputs + model.largest_layer - model.of_layers
        activations += weights / 2 if config.bf16 and not config.lora_r else 0  # autocast keeps converted weights
    head = model.embedding if not config.lora_r else 0
    accumulates = config.gradient_accumulation_steps > 1
    begun = activations + head + compared + BLOCKS + (model.trained if accumulates else 0)
    # The gradient of the input embeddings is dense, beside that of a tied output layer and the accumulated one.
    ended = model.trained + model.largest_layer + head * (model.tied + accumulates)
    return Memory(
        process=PROCESS.get(device, PROCESS["cpu"]),
        weights=weights,
        copies=copies,
        optimizer=moments,
        gradients=float(model.trained),
        activations=activations + BLOCKS,
        turning=max(begun, ended),
        evaluation=DECODED_TOKENS * model.cache_per_token + BLOCKS,
    )


def longest_batch(rows: UnlearningRows, config: TokenTrainingConfig) -> RowLengths:
    """Return the row lengths of the largest possible batch: the longest forget rows with the longest retain rows."""
    size, longest = config.per_device_train_batch_size, list[int]()
    retained = config.retain_per_forget if isinstance(config, UnlearnConfig) else 1
    begun: tuple[int, ...] | None = None  # tokens common to the start of all rows
    shortest = config.max_length
    for name, each in rows.sets.items():
        lengths = array("q")
        for row in each.rows:
            lengths.append(len(row.input_ids))
            if begun is None:
                begun = row.input_ids
            elif row.input_ids[: len(begun)] != begun:
                alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(begun, row.input_ids, strict=False))
                begun = tuple(token for token, _ in alike)
        longest += heapq.nlargest(size * (retained if name == "retain" else 1), lengths)
        shortest = min(shortest, *lengths)
    return RowLengths(tuple(longest), shared_prefix(len(begun or ()), shortest))


def _dtype(source: ModelSource) -> torch.dtype:
    stored = source.dtype if source.dtype != "auto" else getattr(source.architecture(), "dtype", None)
    found: torch.dtype = getattr(torch, stored) if isinstance(stored, str) else stored or torch.float32
    return found
