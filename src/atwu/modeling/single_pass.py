"""The inside of `forward_tokens` (`forward.py`): run a model once on an arranged batch, with optional fast paths.

Which fast paths leave the outputs of a model unchanged is tested once per model (`fast_path_support`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from atwu.data.schema import IGNORE_INDEX
from atwu.modeling.batches import PACKED, Layout, Packing, TokenBatch, lay_out, no_mask, register
from atwu.modeling.distribution_distance import Comparison, Comparisons, compare
from atwu.modeling.head import HeadOutputs, OutputHead, describe_head, output_layer, target_logps, widen
from atwu.modeling.layers import check_layer, decoder_layers, eval_mode, last_mlp, replaced_forward, tap, unwrap

logger = logging.getLogger(__name__)

# What was tested of a model is forgotten with it.
_known: weakref.WeakKeyDictionary[nn.Module, FastPathSupport] = weakref.WeakKeyDictionary()

_readable: weakref.WeakKeyDictionary[nn.Module, dict[int, bool]] = weakref.WeakKeyDictionary()

_REFUSALS = (TypeError, ValueError, RuntimeError, LookupError, AttributeError, AssertionError)
"""Exceptions by which models reject inputs."""
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
"""Layer types that use other tokens only through attention, so that packed rows do not affect each other."""


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
    # FlashAttention needs nothing further: it tells rows apart by their position ids.
    elif attention_of(inner) == PACKED:
        inputs["attention_mask"] = no_mask(arranged.input_ids.device)
        inputs["packing"] = Packing.of(arranged.rows, arranged.new, arranged.input_ids.device)
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
            return _concatenate(output)[None, :, None].clone()  # sharded layers warn about views

        stack.enter_context(replaced_forward(layer, fused_outputs))
        # With activation checkpointing, layers rerun in the backward pass, after replacements are undone.
        checkpointing = any(
            getattr(module, "gradient_checkpointing", False) or hasattr(module, "_checkpoint_wrapped_module")
            for module in inner.modules()
        )
        if fast_paths.last_mlp and not spec.stop and not checkpointing:
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
    line = _concatenate(output)
    if returned.shape == line.shape and torch.equal(returned.detach(), line.detach()):
        # Use the model's return value, so that wrappers that hook outputs see the gradient.
        tokens = output.head.logps.shape[0]
        output = dataclasses.replace(output, head=dataclasses.replace(output.head, logps=returned[:tokens]))
        if output.distances is not None:
            output = dataclasses.replace(output, distances=returned[tokens:])
    if not tapped:
        return output
    layer_states = tapped[0]
    if isinstance(inner, FSDPModule):
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


def _concatenate(output: ForwardOutput) -> Tensor:
    if output.distances is None:
        return output.head.logps
    return torch.cat([output.head.logps, output.distances])


def _with_logits(
    model: nn.Module, inputs: dict[str, Any], arranged: Layout, spec: ForwardSpec, tapped: list[Tensor]
) -> ForwardOutput:
    """Compute the outputs from the model's own logits, for any model that returns them."""
    # A model without a config is not of transformers: it gets the plain arguments only.
    if hasattr(unwrap(model), "config"):
        inputs = inputs | {"output_hidden_states": True}
    else:
        inputs = {key: value for key, value in inputs.items() if key != "position_ids"}
    outputs = model(**inputs)
    predicting, targets = torch.cat(arranged.predicting), torch.cat(arranged.targets)
    logits, dtype = widen(outputs.logits.flatten(0, 1)[predicting]), outputs.logits.dtype
    # A model that returns no hidden states has none that a scorer could read.
    hidden = logits.new_zeros(outputs.logits.shape[:2].numel(), 0)
    states = getattr(outputs, "hidden_states", None)
    if states:
        hidden = states[-1].flatten(0, 1).detach()
    predictions = entropy = variance = layer_states = None
    if spec.predictions:
        predictions = logits.argmax(-1)
    if tapped:
        layer_states = tapped[0]
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
    return ForwardOutput(hidden, HeadOutputs(logps, predictions, entropy, variance), distances, layer_states, slopes)


def _only_at(needed: Tensor, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Apply a per-token module at some tokens and return zeros elsewhere."""

    def partial(states: Tensor) -> Tensor:
        flat = states.flatten(0, 1)
        some = forward(flat.index_select(0, needed)[None])[0]
        return torch.zeros_like(flat, dtype=some.dtype).index_copy(0, needed, some).view(states.shape)

    return partial


# Which fast paths a model allows


def fast_path_support(model: nn.Module, device: torch.device) -> FastPathSupport:
    """Test the fast paths, first all together and then one by one, against the plain computation on short rows.

    Measured instead of listed by model type: a list would be wrong for the next model, and for code of a checkpoint's own.

    If the model can pack, packed attention stays enabled; for all other calls it acts as `sdpa`.
    """
    inner = unwrap(model)
    if inner not in _known:
        with eval_mode(model), torch.no_grad():
            _known[inner] = _try_out(model, inner, device)
        if not _known[inner].fused_head and hasattr(inner, "config"):
            logger.warning("%s: using full logits, which takes more memory", type(inner).__name__)
        logger.info("forward pass of %s: %s", type(inner).__name__, _known[inner])
    return _known[inner]


def _try_out(model: nn.Module, inner: nn.Module, device: torch.device) -> FastPathSupport:
    config: Any = getattr(inner, "config", None)
    if config is None:
        return FastPathSupport()
    if device.type == "cpu" and attention_of(inner) == "flex_attention":
        raise ValueError(
            "FlexAttention has no backward pass on a CPU, and its outputs for padded rows are wrong there; load "
            'the model with attn_implementation="sdpa".'
        )
    # Two of different length, and two that begin alike: packing shares the slots of equal beginnings.
    batches = [_two_rows(inner, device), _two_rows(inner, device, alike=12)]

    def logps(fast_paths: FastPathSupport) -> Tensor:
        passes = (run_pass(model, lay_out([batch], packed=fast_paths.packed), fast_paths) for batch in batches)
        return torch.cat([output.head.logps.float() for output in passes])

    try:
        plain = torch.cat([_own_logps(model, batch) for batch in batches])
    except _REFUSALS as error:
        raise ValueError(f"{type(inner).__name__} cannot compute the logits of two rows: {error}") from error

    def agrees(candidate: FastPathSupport) -> bool:
        return _agrees(plain, lambda: logps(candidate), inner)

    head, has_mlp, before = output_layer(inner) is not None, last_mlp(inner) is not None, attention_of(inner)
    packs = can_pack(inner)
    if packs:
        switch_to_packing(inner)
    everything = FastPathSupport(fused_head=head, last_mlp=head and has_mlp, packed=packs)
    if agrees(everything):  # most models; the single tests below cost a pass each
        return everything
    if packs:
        config._attn_implementation = before
    chosen = next(filter(agrees, (FastPathSupport(), FastPathSupport(positions=False))), None)
    if chosen is None:
        raise ValueError(
            f"{type(inner).__name__} is not supported: its log-probabilities differ from those of its own forward pass."
        )
    fused = dataclasses.replace(chosen, fused_head=True)
    if head and agrees(fused):
        chosen = fused
    shorter = dataclasses.replace(chosen, last_mlp=True)
    if chosen.fused_head and has_mlp and agrees(shorter):
        chosen = shorter
    if chosen.positions and packs:  # position ids say where a packed row begins
        switch_to_packing(inner)
        packed = dataclasses.replace(chosen, packed=True)
        if agrees(packed):
            return packed
        config._attn_implementation = before
    return chosen


def _two_rows(inner: nn.Module, device: torch.device, *, alike: int = 0) -> TokenBatch:
    """Return two rows of random tokens with `alike` common first tokens."""
    config: Any = inner.config
    vocabulary = int(getattr(config.get_text_config(), "vocab_size", 0)) or 2
    # A generator of its own, so that a test of the model changes no draw of training.
    ids = torch.randint(vocabulary, (2, 24), generator=torch.Generator().manual_seed(0)).to(device)
    ids[1, :alike] = ids[0, :alike]
    mask = torch.ones_like(ids, dtype=torch.bool)
    # Rows of two lengths, so that a wrong mask shows; not counted at the start, as a prompt.
    mask[1, 17:] = False
    labels = ids.masked_fill(~mask, IGNORE_INDEX)
    labels[:, :5] = IGNORE_INDEX
    return TokenBatch(ids, mask, labels)


def can_stop_at(model: nn.Module, layer: int, device: torch.device) -> bool:
    """Test whether the output of a decoder layer can be read, and return whether the pass may stop there."""
    inner = unwrap(model)
    known = _readable.setdefault(inner, {})
    if layer not in known:
        with eval_mode(model), torch.no_grad():
            known[layer] = _try_layer(model, inner, layer, device)
    return known[layer]


def _try_layer(model: nn.Module, inner: nn.Module, layer: int, device: torch.device) -> bool:
    fast_paths, batch, last = fast_path_support(model, device), _two_rows(inner, device), len(decoder_layers(inner)) - 1
    compared = min(layer, max(0, last - 1))  # the last hidden state includes the final norm

    def read(index: int, stop: bool) -> Tensor:
        arranged = lay_out([batch], packed=fast_paths.packed)
        states = run_pass(model, arranged, fast_paths, ForwardSpec(layer=index, stop=stop)).layer_states
        assert states is not None
        return states[arranged.own[0]].float()

    check_layer(layer, decoder_layers(inner))
    outputs = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask.long(),
        output_hidden_states=True,
        use_cache=False,
    )
    named = getattr(outputs, "hidden_states", None) or ()
    expected = None
    if len(named) == last + 2:  # the embeddings, and the output of each layer
        own = named[compared + 1]
        if own.ndim == 3:
            expected = own[:, 1:][batch.mask].float()
    if expected is None or (last and not _agrees(expected, lambda: read(compared, False), inner)):
        raise ValueError(
            f"this method needs the output of decoder layer {layer}, which cannot be read from {type(inner).__name__}."
        )
    return _agrees(read(layer, False), lambda: read(layer, True), inner)


def _own_logps(model: nn.Module, batch: TokenBatch) -> Tensor:
    logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask.long()).logits
    all_logps = logits[:, :-1].float().log_softmax(dim=-1)
    own: Tensor = all_logps[batch.mask].gather(1, batch.input_ids[:, 1:][batch.mask][:, None]).squeeze(1)
    return own


def _agrees(plain: Tensor, attempt: Any, inner: nn.Module) -> bool:
    half = next(inner.parameters()).dtype in (torch.float16, torch.bfloat16)
    half = half or torch.is_autocast_enabled(plain.device.type) or getattr(inner, "is_quantized", False)
    tolerance = 1e-4
    if half:  # rounding of the dtype is no difference: half precision has about three decimal digits
        tolerance = 0.05
    try:
        attempted = attempt()
    except _REFUSALS as error:
        logger.info("fast path not available for %s: %s", type(inner).__name__, error)
        return False
    return attempted.shape == plain.shape and bool(((attempted - plain).abs() <= tolerance * (1 + plain.abs())).all())


def can_pack(inner: nn.Module) -> bool:
    """Return whether rows can be packed: replaceable attention and no other state between tokens."""
    config: Any = inner.config
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ())
    # A recurrent layer would carry its state from one packed row into the next.
    if not kinds <= _ATTENTION_LAYERS or getattr(inner, "_is_stateful", False):
        return False
    current = attention_of(inner)
    if isinstance(current, str) and current.startswith("flash_attention"):
        return True  # packs by position ids
    return current in ("sdpa", PACKED) and bool(getattr(inner, "_supports_attention_backend", False))


def switch_to_packing(inner: nn.Module) -> None:
    config: Any = inner.config
    if attention_of(inner) == "sdpa":
        register()
        config._attn_implementation = PACKED
