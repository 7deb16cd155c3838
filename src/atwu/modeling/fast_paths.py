"""Test, once per model, which fast paths of the forward pass leave its outputs unchanged."""

from __future__ import annotations

import dataclasses
import logging
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from atwu.data.schema import IGNORE_INDEX
from atwu.modeling.batches import TokenBatch, lay_out
from atwu.modeling.head import output_layer
from atwu.modeling.layers import check_layer, decoder_layers, last_mlp, unwrap
from atwu.modeling.modes import eval_mode
from atwu.modeling.packed_attention import PACKED, register
from atwu.modeling.single_pass import FastPathSupport, ForwardSpec, attention_of, run_pass

logger = logging.getLogger(__name__)

_known: weakref.WeakKeyDictionary[nn.Module, FastPathSupport] = weakref.WeakKeyDictionary()

_readable: weakref.WeakKeyDictionary[nn.Module, dict[int, bool]] = weakref.WeakKeyDictionary()

_REFUSALS = (TypeError, ValueError, RuntimeError, LookupError, AttributeError, AssertionError)
"""Exceptions by which models reject inputs."""
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
"""Layer types that use other tokens only through attention, so that packed rows do not affect each other."""


def fast_path_support(model: nn.Module, device: torch.device) -> FastPathSupport:
    """Test the fast paths, first all together and then one by one, against the plain computation on short rows.

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
    ids = torch.randint(vocabulary, (2, 24), generator=torch.Generator().manual_seed(0)).to(device)
    ids[1, :alike] = ids[0, :alike]
    mask = torch.ones_like(ids, dtype=torch.bool)
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
    # Rounding of the dtype is no difference: half precision has about three decimal digits.
    tolerance = 0.05 if half else 1e-4
    try:
        other = attempt()
    except _REFUSALS as error:
        logger.info("fast path not available for %s: %s", type(inner).__name__, error)
        return False
    return other.shape == plain.shape and bool(((other - plain).abs() <= tolerance * (1 + plain.abs())).all())


def can_pack(inner: nn.Module) -> bool:
    """Return whether rows can be packed: replaceable attention and no other state between tokens."""
    config: Any = inner.config
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ())
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
