"""The inside of `forward_tokens` (`forward.py`): run a model once on an arranged batch, with optional fast paths.

`fast_paths.py` tests which fast paths leave the outputs of a model unchanged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from atwu.modeling.batches import Layout
from atwu.modeling.distribution_distance import Comparison, Comparisons, compare
from atwu.modeling.head import HeadOutputs, OutputHead, describe_head, output_layer, target_logps, widened
from atwu.modeling.layers import last_mlp, replaced_forward, tap, unwrap
from atwu.modeling.packed_attention import PACKED, Packing, no_mask


@dataclass(frozen=True, slots=True)
class FastPathSupport:
    fused_head: bool = False
    """Compute log-probabilities from hidden states, without logits."""
    last_mlp: bool = False
    """Compute the MLP of the last layer only where its output is used."""
    packed: bool = False
    """Pack rows instead of padding them."""
    positions: bool = True
    """Pass position ids counted from 0; a model that counts otherwise (RoBERTa) computes its own."""


def attention_of(inner: nn.Module) -> str | None:
    return getattr(getattr(inner, "config", None), "_attn_implementation", None)


@dataclass(frozen=True, slots=True)
class ForwardSpec:
    """Outputs of a forward pass besides the log-probabilities of the targets."""

    predictions: bool = False
    entropy_temperature: float | None = None
    variance: bool = False
    """Whether to return the variance of the log-probability, at the temperature of the entropy."""
    comparisons: tuple[Comparison | None, ...] = ()
    """For each batch, a distance to compute at its counted tokens; empty for none."""
    layer: int | None = None
    """Decoder layer whose output is returned, counted from 0."""
    stop: bool = False
    """Skip the layers after `layer` and the output layer."""


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """Outputs of one pass; per-token tensors contain all counted tokens of all batches in order."""

    states: Tensor
    """Final hidden states without gradient, (slots, hidden), valid at counted tokens and the tokens before them."""
    head: HeadOutputs
    distances: Tensor | None
    """Distance at each token, 0 in batches without comparison; None without any."""
    layer_states: Tensor | None
    """Output of the requested layer with gradient, (slots, hidden)."""
    slopes: Tensor | None = None
    """Slope of the distance at each token, without gradient; None without comparison."""


def run_pass(
    model: nn.Module, arranged: Layout, fast_paths: FastPathSupport, spec: ForwardSpec | None = None
) -> ForwardOutput:
    spec = spec or ForwardSpec()
    inner = unwrap(model)
    inputs: dict[str, Any] = {"input_ids": arranged.input_ids}
    if fast_paths.positions:
        inputs["position_ids"] = arranged.position_ids
    if arranged.attention_mask is not None:
        inputs["attention_mask"] = arranged.attention_mask
    elif attention_of(inner) == PACKED:
        inputs["attention_mask"] = no_mask(arranged.input_ids.device)
        inputs["packing"] = Packing.of(arranged.rows, arranged.owned, arranged.input_ids.device)
    layer = output_layer(inner)
    with contextlib.ExitStack() as stack:
        tapped: list[Tensor] = []
        if spec.layer is not None:
            stack.enter_context(tap(inner, spec.layer, tapped, stop=spec.stop))
        if not fast_paths.fused_head or layer is None:
            return _with_logits(model, inputs, arranged, spec, tapped)
        caught: list[ForwardOutput] = []

        def fused_outputs(states: Tensor) -> Tensor:
            output = _at_the_head(states.flatten(0, 1), describe_head(layer, inner.config), arranged, spec)
            caught.append(output)
            # The model returns this in place of its logits: one number per token, arranged as (1, tokens, 1).
            return _concatenated(output)[None, :, None].clone()  # sharded layers warn about views

        stack.enter_context(replaced_forward(layer, fused_outputs))
        if fast_paths.last_mlp and not spec.stop and not _checkpoints_activations(inner):
            # The last layer's attention needs all tokens, its MLP works on each alone, and only some are read afterwards.
            mlp = last_mlp(inner)
            assert mlp is not None
            needed = torch.unique(torch.cat([*arranged.predicting, *arranged.own]))
            stack.enter_context(replaced_forward(mlp, _only_at(needed, mlp.forward)))
        outputs = model(**inputs, use_cache=False)
    # A model that calls its output layer twice, or not at all, would leave the loss of another computation in `caught`.
    if len(caught) != 1:
        raise RuntimeError(
            f"the output layer of {type(inner).__name__} ran {len(caught)} times in one forward pass, expected once; this "
            "model is not supported."
        )
    output, returned = caught[0], outputs.logits.reshape(-1)
    line = _concatenated(output)
    if returned.shape == line.shape and torch.equal(returned.detach(), line.detach()):
        # Use the model's return value, so that wrappers that hook outputs see the gradient.
        output = _split(returned, output)
    layer_states = tapped[0] if tapped else None
    if layer_states is not None and isinstance(inner, FSDPModule):
        # Sharded weights get gradients only if the loss depends on the model's return value.
        layer_states = layer_states + 0 * returned.sum()
    return dataclasses.replace(output, layer_states=layer_states)


def _at_the_head(states: Tensor, head: OutputHead, arranged: Layout, spec: ForwardSpec) -> ForwardOutput:
    predicting, targets = torch.cat(arranged.predicting), torch.cat(arranged.targets)
    chosen = states[predicting]
    if spec.stop:
        # Zeros with a graph: data parallelism searches the graph of the returned tensor for parameters.
        nothing = HeadOutputs((chosen[:, :1] * 0).sum(dim=1).float(), None, None)
        return ForwardOutput(states.detach(), nothing, None, None)
    wants_more = spec.predictions or spec.entropy_temperature is not None
    if not any(spec.comparisons):
        return ForwardOutput(states.detach(), _targets(chosen, head, targets, spec), None, None)
    # Log-probabilities and distances share the same logits.
    logps, distances, slopes = compare(chosen, head, _together(arranged, targets, spec)).unbind(dim=1)
    more = HeadOutputs(logps, None, None)
    if wants_more:
        with torch.no_grad():
            more = _targets(chosen, head, targets, spec)
    return ForwardOutput(states.detach(), dataclasses.replace(more, logps=logps), distances, None, slopes.detach())


def _together(arranged: Layout, targets: Tensor, spec: ForwardSpec) -> Comparisons:
    ends = list(itertools.accumulate((where.shape[0] for where in arranged.predicting), initial=0))
    return Comparisons(targets, tuple(zip(map(slice, ends, ends[1:]), spec.comparisons, strict=True)))


def _targets(states: Tensor, head: OutputHead, targets: Tensor, spec: ForwardSpec) -> HeadOutputs:
    return target_logps(
        states,
        head,
        targets,
        predictions=spec.predictions,
        entropy_temperature=spec.entropy_temperature,
        variance=spec.variance,
    )


def _concatenated(output: ForwardOutput) -> Tensor:
    if output.distances is None:
        return output.head.logps
    return torch.cat([output.head.logps, output.distances])


def _split(line: Tensor, output: ForwardOutput) -> ForwardOutput:
    """Replace the differentiable outputs by slices of the concatenated tensor."""
    tokens = output.head.logps.shape[0]
    head = dataclasses.replace(output.head, logps=line[:tokens])
    distances = None
    if output.distances is not None:
        distances = line[tokens:]
    return dataclasses.replace(output, head=head, distances=distances)


def _with_logits(
    model: nn.Module, inputs: dict[str, Any], arranged: Layout, spec: ForwardSpec, tapped: list[Tensor]
) -> ForwardOutput:
    """Compute the outputs from the model's own logits, for any model that returns them."""
    # A model without a config is not of transformers: it gets the plain arguments only.
    has_config = hasattr(unwrap(model), "config")
    inputs = {key: value for key, value in inputs.items() if has_config or key != "position_ids"}
    outputs = model(**inputs, **({"output_hidden_states": True} if has_config else {}))
    predicting, targets = torch.cat(arranged.predicting), torch.cat(arranged.targets)
    logits, dtype = widened(outputs.logits.flatten(0, 1)[predicting]), outputs.logits.dtype
    states = getattr(outputs, "hidden_states", None)
    hidden = states[-1].flatten(0, 1).detach() if states else logits.new_zeros(outputs.logits.shape[:2].numel(), 0)
    entropy = variance = None
    if spec.entropy_temperature is not None:
        with torch.no_grad():
            distribution = torch.distributions.Categorical(logits=logits / spec.entropy_temperature)
            entropy = distribution.entropy()
            if spec.variance:
                surprise = distribution.logits.clamp(min=-1e4)  # excluded tokens have -inf and contribute 0
                variance = (distribution.probs * (surprise + entropy[:, None]) ** 2).sum(-1)
    distances = slopes = None
    if any(spec.comparisons):
        columns = _together(arranged, targets, spec).of(logits, slice(0, len(logits)), dtype)
        logps, distances, slopes = columns.unbind(dim=1)
        slopes = slopes.detach()
    else:
        logps = logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    out = HeadOutputs(logps, logits.argmax(-1) if spec.predictions else None, entropy, variance)
    return ForwardOutput(hidden, out, distances, tapped[0] if tapped else None, slopes)


def _checkpoints_activations(inner: nn.Module) -> bool:
    """Return whether activation checkpointing is on: layers rerun in the backward pass, after replacements are undone."""
    return any(
        getattr(module, "gradient_checkpointing", False) or hasattr(module, "_checkpoint_wrapped_module")
        for module in inner.modules()
    )


def _only_at(needed: Tensor, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Apply a per-token module at some tokens and return zeros elsewhere."""

    def partial(states: Tensor) -> Tensor:
        flat = states.flatten(0, 1)
        some = forward(flat.index_select(0, needed)[None])[0]
        return torch.zeros_like(flat, dtype=some.dtype).index_copy(0, needed, some).view(states.shape)

    return partial
