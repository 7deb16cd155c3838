"""Estimate the memory of a training run, item by item, before any weights are read.

What the model and one batch hold (`Footprint`) is measured by a forward pass of fake tensors; `memory` adds what the
configuration makes of it.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.modeling.batches import Layout, Packing, TokenBatch, lay_out, no_mask
from atwu.modeling.layers import block_list, text_config, unwrap
from atwu.modeling.single_pass import can_pack, switch_to_packing
from atwu.training.config import TokenTrainingConfig, UnlearnConfig
from atwu.training.load_to_train import ModelSource, model_without_weights, with_adapters
from atwu.training.training_rows import UnlearningRows

logger = logging.getLogger(__name__)

# Of single steps the estimate was at most 10 % off (benchmarks/results/request-memory.md).
# `RULE` for every model, in place of the pass of fake tensors, gives .83 of the activations of a Llama in float32, .53 of
# Qwen3, .52 of Gemma 3, .51 of GPT-2 and .78 of Phi-3: too little to choose a strategy by.
PROCESS = {"cpu": 0.6e9, "cuda": 0.5e9}
"""Base memory of Python and its libraries; on a GPU, of the driver's context."""
BLOCKS = 0.2e9
"""Logits and derived tensors, computed in blocks of bounded size, and the allocator's reserve (measured)."""
DECODED_TOKENS = 4096
"""Tokens generated or evaluated at once."""
_BITS = {"4bit": 0.516, "8bit": 1.0}
"""Bytes per weight including its scales (NF4 with double quantization: Dettmers et al. 2023)."""
RULE = 17
"""Activations of a layer per token, in multiples of the hidden size (Korthikanti et al. 2022, with fused attention)."""


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
    holes: float = 0.0
    """Freed memory that no later tensor fits, in long runs on a CPU (`keep_freed_memory`)."""

    @property
    def peak(self) -> float:
        held = self.process + self.weights + self.copies + self.optimizer + self.holes
        return held + max(self.turning, self.evaluation)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a model, and of the activations that one forward pass stores, in bytes."""

    trained_parameters: int
    weights: int
    trained: int
    """Bytes of the weights with gradients."""
    layers_only: int
    """Bytes of the frozen linear layers in the decoder, which can be quantized."""
    embedding: int
    tied: bool
    """Whether the output layer shares its weights with the input embeddings."""
    kept: int
    """Activations of the whole pass, without the output layer."""
    of_layers: int
    """Activations inside decoder layers."""
    largest_layer: int
    inputs: int
    """Inputs of all decoder layers, which are what activation checkpointing stores."""
    cache_per_token: int
    """Key-value cache per token in generation; 0 for a recurrent model, whose state has a fixed size."""


def memory(model: Footprint, config: TokenTrainingConfig, *, device: str) -> Memory:
    weights = float(model.weights)
    if config.quantize is not None:
        weights -= model.layers_only * (1 - _BITS[config.quantize] / 2)  # these are counted with 2 bytes
    copies, compared = 0.0, 0.0
    if isinstance(config, UnlearnConfig):
        original = config.recipe().original
        if "distributions" in original:
            half = config.bf16 or config.fp16
            # Autocast converts the output layer and that of the reference; the gradient adds products of its size.
            gradient = 0.0
            if not config.lora_r:
                gradient = 0.5 if half else 1.0
            compared = model.embedding * (half + gradient)
        if config.reference == "model" and original:
            copies += weights
        elif "distributions" in original and not config.lora_r:
            copies += model.embedding
        if config.perturbs_weights:  # original weights, perturbation, and gradient at the perturbed weights
            copies += 3 * model.trained
        if config.rectify_gradient:  # retain gradient, its moving average, and the forget gradient
            copies += 3 * model.trained
        if config.collapse_components:  # retain gradient and collapsed forget gradient
            copies += 2 * model.trained
        if config.clean_change and device == "cpu":  # original weights, in main memory
            copies += model.trained
    optimizer = str(getattr(config.optim, "value", config.optim))
    moments = 2.0 * model.trained  # AdamW: means of gradients and of their squares
    if any(name in optimizer for name in ("paged", "sgd", "adafactor")):
        moments = 0.0  # in main memory, none, or sums of rows and columns
    elif "8bit" in optimizer:
        moments = 2.05 * model.trained_parameters  # one byte per moment, plus scales
    activations = float(model.kept)
    if isinstance(config, UnlearnConfig) and config.perturbs_weights:
        activations *= 2  # the pass at the perturbed weights begins before the backward pass of the other one
    if config.activation_checkpointing and model.of_layers:
        activations += model.inputs + model.largest_layer - model.of_layers
        if config.bf16 and not config.lora_r:
            activations += weights / 2  # autocast keeps converted weights
    head = 0
    if not config.lora_r:
        head = model.embedding
    accumulates = config.gradient_accumulation_steps > 1
    begun = activations + head + compared + BLOCKS
    if accumulates:
        begun += model.trained
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


def longest_batch(rows: UnlearningRows, config: TokenTrainingConfig) -> Layout:
    """Return the largest possible batch: the longest rows of all sets that a step reads."""
    size = config.per_device_train_batch_size
    retained = 1
    if isinstance(config, UnlearnConfig):
        retained = config.retain_per_forget
    sets = dict(rows.encoded)
    if rows.retain_alternates is not None:
        sets["retain_alternate"] = rows.retain_alternates.rows
    if isinstance(config, UnlearnConfig) and config.recipe().forget_component.trained_answer == "alternate":
        sets.pop("forget")
    longest = list[Tensor]()
    for name, rows_of_set in sets.items():
        count = size
        if name.startswith("retain"):
            count *= retained
        longest += map(torch.tensor, heapq.nlargest(count, (row.input_ids for row in rows_of_set), key=len))
    ids = nn.utils.rnn.pad_sequence(longest, batch_first=True, padding_value=-1)
    return lay_out([TokenBatch(ids, ids >= 0, ids)], packed=True)


def measure_footprint(source: ModelSource, config: TokenTrainingConfig, batch: Layout, *, device: str) -> Footprint:
    """Measure a model's footprint on a kind of device, with its adapters and one batch (`longest_batch`)."""
    plain = model_without_weights(source.architecture(), trust_remote_code=source.trust_remote_code)
    plain = plain.to(torch.bfloat16 if config.quantize else _dtype(source))
    autocast = None
    if config.bf16:
        autocast = torch.bfloat16
    elif config.fp16:
        autocast = torch.float16
    return footprint(with_adapters(plain, config), batch, autocast=autocast, device=device)


def _dtype(source: ModelSource) -> torch.dtype:
    stored: Any = source.dtype
    if stored == "auto":
        stored = getattr(source.architecture(), "dtype", None)
    if isinstance(stored, str):
        stored = getattr(torch, stored)
    dtype: torch.dtype = stored or torch.float32
    return dtype


def footprint(
    model: nn.Module, batch: Layout, *, autocast: torch.dtype | None = None, device: str = "cpu"
) -> Footprint:
    """Compute the memory needs of a model.

    Args:
        model: on the meta device, changed in place; trained parameters require gradients.
        batch: the rows of one forward pass.
        autocast: dtype of matrix products, if not that of the weights.

    If the pass depends on data, as in most mixtures of experts, activations are estimated by `RULE`.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Failures are reported by the exception.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    packing = Packing.of(batch.rows, batch.new, torch.device("cpu"))
    with FakeTensorMode():
        _materialize(model.train())
        inner: Any = unwrap(model)
        plain = inner.get_base_model() if hasattr(inner, "peft_config") else inner
        parameters, blocks, shape = list(model.parameters()), block_list(plain) or (), text_config(plain)
        # Weights are counted once, although the pass saves them for its backward pass too.
        own = {_storage(tensor) for tensor in (*parameters, *model.buffers())}
        saved: dict[int, int] = {}
        marks, inputs = list[int](), list[int]()

        def save(tensor: Tensor) -> Tensor:
            if _storage(tensor) not in own:
                saved[_storage(tensor)] = tensor.untyped_storage().nbytes()
            return tensor  # which keeps the storage, so that no other one gets its address

        def begins(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            marks.append(sum(saved.values()))
            inputs.append((args[0] if args else kwargs["hidden_states"]).nbytes)

        with contextlib.ExitStack() as stack:
            for layer in blocks:
                stack.callback(layer.register_forward_pre_hook(begins, with_kwargs=True).remove)
                stack.callback(layer.register_forward_hook(lambda *_: marks.append(sum(saved.values()))).remove)
            stack.enter_context(torch.autocast("cpu", autocast, enabled=autocast is not None))
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor))
            try:
                out = plain.get_decoder()(**_inputs(plain, batch, packing, device), use_cache=False)
                kept = sum(saved.values())
                del out
                layers = [after - start for start, after in zip(marks[::2], marks[1::2], strict=True)]
            except Exception as error:  # architectures fail in many ways on fake tensors
                logger.info("activations of %s are estimated by rule: %s", type(plain).__name__, error)
                tokens = sum(map(len, batch.rows)) * shape.hidden_size * parameters[0].element_size()
                inputs = [tokens] * shape.num_hidden_layers
                layers = [RULE * size for size in inputs]
                kept = sum(layers)
        head = plain.get_output_embeddings().weight
        linear = [module for layer in blocks for module in layer.modules() if isinstance(module, nn.Linear)]
        heads = getattr(shape, "num_key_value_heads", None) or getattr(shape, "num_attention_heads", None)
        cache_per_token = 0
        if heads:  # keys and values of every layer
            width = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
            cache_per_token = 2 * shape.num_hidden_layers * heads * width * head.element_size()
        return Footprint(
            trained_parameters=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
            weights=sum(parameter.nbytes for parameter in parameters),
            trained=sum(parameter.nbytes for parameter in parameters if parameter.requires_grad),
            layers_only=sum(module.weight.nbytes for module in linear if not module.weight.requires_grad),
            embedding=head.nbytes,
            tied=head is plain.get_input_embeddings().weight,
            kept=kept,
            of_layers=sum(layers),
            largest_layer=max(layers, default=0),
            inputs=sum(inputs),
            cache_per_token=cache_per_token,
        )


def _inputs(model: nn.Module, batch: Layout, packing: Packing, kind: str) -> dict[str, Any]:
    """Return inputs of the size of a batch, in the current mode; what fake tensors contain does not matter."""
    if not can_pack(model):
        return {"input_ids": torch.zeros(len(batch.rows), max(map(len, batch.rows)), dtype=torch.long)}
    switch_to_packing(model)
    tokens = batch.input_ids.shape
    return {
        "input_ids": torch.zeros(tokens, dtype=torch.long),
        "position_ids": torch.zeros(tokens, dtype=torch.long),
        "attention_mask": no_mask(torch.device("cpu")),
        "packing": Packing(
            tuple(torch.zeros(group.shape, dtype=torch.long) for group in packing.groups),
            torch.zeros(packing.outputs.shape, dtype=torch.long),
            float32=kind == "cpu",
        ),
    }


def _storage(tensor: Tensor) -> int:
    storage: Any = tensor.untyped_storage()
    return int(storage._cdata)


def _materialize(model: nn.Module) -> None:
    """Allocate every parameter and buffer in the current mode; shared tensors stay shared."""
    allocated: dict[int, Tensor] = {}
    for module in model.modules():
        held: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for tensors in held:
            for name, old in tensors.items():
                if old is None:
                    continue
                if id(old) not in allocated:
                    new = torch.empty(old.shape, dtype=old.dtype)
                    allocated[id(old)] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
                tensors[name] = allocated[id(old)]
