"""One forward pass over an arranged batch, by shortcuts that are each optional.

Which shortcuts leave a given model's numbers unchanged is for `abilities` to find out.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from atwu.modeling.batches import Layout
from atwu.modeling.distribution_distance import Comparison, Comparisons, compare, compare_logits
from atwu.modeling.head import HeadOutputs, OutputHead, describe_head, output_layer, target_logps
from atwu.modeling.layers import last_mlp, replaced_forward, tap
from atwu.modeling.packed_attention import PACKED, Packing, no_mask


@dataclass(frozen=True, slots=True)
class FastPathSupport:
    """Which shortcuts to take."""

    fused_head: bool = False
    """Log-probabilities straight from the hidden states, without logits."""
    last_mlp: bool = False
    """The last layer's MLP only where its result is used."""
    packed: bool = False
    """Rows end to end instead of side by side."""
    positions: bool = True
    """Positions are handed over, counted from 0; a model that counts otherwise (RoBERTa) does so itself."""


def unwrap(model: nn.Module) -> nn.Module:
    """The model without its DDP, FSDP, compile or accelerate wrappers."""
    if isinstance(model, PreTrainedModel) and not hasattr(model, "_orig_mod"):
        return model  # asked several times a step, and the search for wrappers looks at every module
    from accelerate.utils import extract_model_from_parallel

    inner: nn.Module = extract_model_from_parallel(model)
    return inner


def attention_of(inner: nn.Module) -> str | None:
    """Name of the attention function a model uses."""
    return getattr(getattr(inner, "config", None), "_attn_implementation", None)


@dataclass(frozen=True, slots=True)
class ForwardSpec:
    """What to compute besides the log-probabilities of the targets."""

    predictions: bool = False
    entropy_temperature: float | None = None
    variance: bool = False
    """Also the variance of the log-probability, at the entropy's temperature."""
    comparisons: tuple[Comparison | None, ...] = ()
    """For each batch, a distance to measure at its counted tokens; empty for none at all."""
    layer: int | None = None
    """Also give the output of this decoder layer, counted from 0."""
    stop: bool = False
    """Nothing after `layer` is needed: skip the later layers and the output layer."""


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """What one pass gave; per-token tensors run over all counted tokens of all batches in order."""

    states: Tensor
    """Final hidden states without gradient, (slots, hidden), valid at counted tokens and the ones before them."""
    head: HeadOutputs
    distances: Tensor | None
    """What the comparisons measured at each token, 0 in batches without one; None without any."""
    layer_states: Tensor | None
    """Output of the asked for layer with gradient, (slots, hidden)."""


def run_pass(
    model: nn.Module, arranged: Layout, abilities: FastPathSupport, questions: ForwardSpec | None = None
) -> ForwardOutput:
    """Run the model once."""
    questions = questions or ForwardSpec()
    inner = unwrap(model)
    inputs: dict[str, Any] = {"input_ids": arranged.input_ids}
    if abilities.positions:
        inputs["position_ids"] = arranged.position_ids
    if arranged.attention_mask is not None:
        inputs["attention_mask"] = arranged.attention_mask
    elif attention_of(inner) == PACKED:
        inputs["attention_mask"] = no_mask(arranged.input_ids.device)
        inputs["packing"] = Packing.of(arranged.lengths, arranged.input_ids.device)
    layer = output_layer(inner)
    with contextlib.ExitStack() as stack:
        tapped: list[Tensor] = []
        if questions.layer is not None:
            stack.enter_context(tap(inner, questions.layer, tapped, stop=questions.stop))
        if not abilities.fused_head or layer is None:
            return _with_logits(model, inputs, arranged, questions, tapped)
        caught: list[ForwardOutput] = []

        def instead_of_logits(states: Tensor) -> Tensor:
            answers = _at_the_head(states.flatten(0, 1), describe_head(layer, inner.config), arranged, questions)
            caught.append(answers)
            return _lined_up(answers)[None, :, None].clone()  # of views, sharded layers warn

        stack.enter_context(replaced_forward(layer, instead_of_logits))
        if abilities.last_mlp and not questions.stop and not _recomputes(inner):
            mlp = last_mlp(inner)
            assert mlp is not None
            needed = torch.unique(torch.cat([*arranged.predicting, *arranged.own]))
            stack.enter_context(replaced_forward(mlp, _only_at(needed, mlp.forward)))
        outputs = model(**inputs, use_cache=False)
    if len(caught) != 1:
        raise RuntimeError(f"the output layer of {type(inner).__name__} ran {len(caught)} times in one forward pass.")
    answers, returned = caught[0], outputs.logits.reshape(-1)
    line = _lined_up(answers)
    if returned.shape == line.shape and torch.equal(returned.detach(), line.detach()):
        # Through the model's own return value, so that wrappers which hook outputs see the gradient.
        answers = _taken_apart(returned, answers)
    layer_states = tapped[0] if tapped else None
    if layer_states is not None and isinstance(inner, FSDPModule):
        # Sharded weights get their gradients only where a loss reaches what the model returned.
        layer_states = layer_states + 0 * returned.sum()
    return dataclasses.replace(answers, layer_states=layer_states)


def _at_the_head(states: Tensor, head: OutputHead, arranged: Layout, questions: ForwardSpec) -> ForwardOutput:
    """Everything that is read off the final hidden states."""
    predicting, targets = torch.cat(arranged.predicting), torch.cat(arranged.targets)
    chosen = states[predicting]
    if questions.stop:
        # Zeros that still hang on the graph: data parallelism looks for the parameters behind the returned tensor.
        nothing = HeadOutputs((chosen[:, :1] * 0).sum(dim=1).float(), None, None)
        return ForwardOutput(states.detach(), nothing, None, None)
    wants_more = questions.predictions or questions.entropy_temperature is not None
    if not any(questions.comparisons):
        return ForwardOutput(states.detach(), _targets(chosen, head, targets, questions), None, None)
    sizes = [where.shape[0] for where in arranged.predicting]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    places = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    together = Comparisons(targets, tuple(zip(places, questions.comparisons, strict=True)))
    # Log-probabilities and distances come from the same logits, which are computed once.
    logps, distances = compare(chosen, head, together).unbind(dim=1)
    with torch.no_grad():
        more = _targets(chosen, head, targets, questions) if wants_more else HeadOutputs(logps, None, None)
    return ForwardOutput(states.detach(), dataclasses.replace(more, logps=logps), distances, None)


def _targets(states: Tensor, head: OutputHead, targets: Tensor, questions: ForwardSpec) -> HeadOutputs:
    return target_logps(
        states,
        head,
        targets,
        predictions=questions.predictions,
        entropy_temperature=questions.entropy_temperature,
        variance=questions.variance,
    )


def _lined_up(answers: ForwardOutput) -> Tensor:
    """All differentiable results in one row."""
    return answers.head.logps if answers.distances is None else torch.cat([answers.head.logps, answers.distances])


def _taken_apart(line: Tensor, answers: ForwardOutput) -> ForwardOutput:
    """The answers with their differentiable results replaced by those of the row."""
    tokens = answers.head.logps.shape[0]
    head = dataclasses.replace(answers.head, logps=line[:tokens])
    return dataclasses.replace(answers, head=head, distances=None if answers.distances is None else line[tokens:])


def _with_logits(
    model: nn.Module, inputs: dict[str, Any], arranged: Layout, questions: ForwardSpec, tapped: list[Tensor]
) -> ForwardOutput:
    """The same from the model's own logits, for any model that returns them."""
    has_config = hasattr(unwrap(model), "config")
    inputs = {key: value for key, value in inputs.items() if has_config or key != "position_ids"}
    outputs = model(**inputs, **({"output_hidden_states": True} if has_config else {}))
    predicting, targets = torch.cat(arranged.predicting), torch.cat(arranged.targets)
    everywhere = outputs.logits.flatten(0, 1)
    logits = everywhere[predicting]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    states = getattr(outputs, "hidden_states", None)
    hidden = states[-1].flatten(0, 1).detach() if states else logits.new_zeros(outputs.logits.shape[:2].numel(), 0)
    entropy = variance = None
    if questions.entropy_temperature is not None:
        with torch.no_grad():
            distribution = torch.distributions.Categorical(logits=logits / questions.entropy_temperature)
            entropy = distribution.entropy()
            if questions.variance:
                surprise = distribution.logits.clamp(min=-1e4)  # excluded tokens are at -inf and count for nothing
                variance = (distribution.probs * (surprise + entropy[:, None]) ** 2).sum(-1)
    logps = logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    distances = None
    if any(questions.comparisons):
        each = zip(arranged.predicting, questions.comparisons, strict=True)
        parts = [
            logits.new_zeros(len(where)) if comparison is None else compare_logits(everywhere[where], comparison)
            for where, comparison in each
        ]
        distances = torch.cat(parts)
    out = HeadOutputs(logps, logits.argmax(-1) if questions.predictions else None, entropy, variance)
    return ForwardOutput(hidden, out, distances, tapped[0] if tapped else None)


def _recomputes(inner: nn.Module) -> bool:
    """Whether layers run again in the backward pass, when nothing is replaced any more."""
    return any(
        getattr(module, "gradient_checkpointing", False) or hasattr(module, "_checkpoint_wrapped_module")
        for module in inner.modules()
    )


def _only_at(needed: Tensor, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Apply a per-token module at some tokens; zeros elsewhere."""

    def partial(states: Tensor) -> Tensor:
        flat = states.flatten(0, 1)
        some = forward(flat.index_select(0, needed)[None])[0]
        return torch.zeros_like(flat, dtype=some.dtype).index_copy(0, needed, some).view(states.shape)

    return partial
