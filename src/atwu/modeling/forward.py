"""One forward pass over any number of batches, with the output layer only where a token counts.

Every loss and every metric gets its log-probabilities here. The pass packs rows end to end and reads log-probabilities
straight from the hidden states; for an architecture where a short trial shows that either would change the numbers, it
falls back to padded rows or to the model's own logits.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from atwu.data.schema import IGNORE_INDEX
from atwu.modeling.batches import Layout, TokenBatch, lay_out
from atwu.modeling.head import HeadOutputs, head_of, target_logps
from atwu.modeling.packed_attention import PACKED, Packing, no_mask, register

logger = logging.getLogger(__name__)

LayoutChoice = Literal["auto", "packed", "padded"]
HiddenPosition = Literal["own", "pred"]


@dataclass(frozen=True, slots=True)
class TokenOutputs:
    """What the model says about the counted tokens of one batch.

    Two-dimensional tensors have shape (batch, length - 1): entry j is about token j + 1, and 0 where `mask` is False.
    """

    logps: Tensor
    mask: Tensor
    predictions: Tensor | None
    """Greedy token before each position, or None if not asked for."""
    entropy: Tensor | None
    """Entropy in nats of the next-token distribution, without gradient, or None if not asked for."""
    states: Tensor
    """Final hidden states of the whole pass, flattened, without gradient, shape (slots, hidden)."""
    own: Tensor
    predicting: Tensor

    def hidden(self, position: HiddenPosition) -> Tensor:
        """States that a scorer sees, shape (counted tokens, hidden), in row-major order of `mask`.

        Args:
            position: `own` for the state after the token was read, `pred` for the one that predicts it.
        """
        return self.states[self.own if position == "own" else self.predicting]

    def spread(self, values: Tensor) -> Tensor:
        """Put one value per counted token back on the (batch, length - 1) grid."""
        return _spread(values, self.mask)


@dataclass(frozen=True, slots=True)
class Abilities:
    """Which shortcuts leave a model's numbers unchanged."""

    fused_head: bool
    packed: bool


_abilities: weakref.WeakKeyDictionary[nn.Module, Abilities] = weakref.WeakKeyDictionary()


def forward_tokens(
    model: nn.Module,
    batches: Sequence[TokenBatch | Mapping[str, Tensor]],
    *,
    predictions: bool = False,
    entropy_temperature: float | None = None,
    layout: LayoutChoice = "auto",
) -> list[TokenOutputs]:
    """Run the model once over all rows of all batches.

    Args:
        model: a causal language model, wrapped (DDP, FSDP, PEFT) or not.
        batches: any number of batches; their padding may be on either side and costs nothing.
        predictions: also return the greedy token at every counted position.
        entropy_temperature: also return next-token entropies at this temperature.
        layout: `packed` lays rows end to end, `padded` side by side; `auto` packs where the model allows it.
    """
    checked = [TokenBatch.of(batch) for batch in batches]
    abilities = abilities_of(model, checked[0].input_ids.device)
    packed = abilities.packed if layout == "auto" else layout == "packed"
    if packed and not abilities.packed:
        raise ValueError(
            f"{type(unwrap(model)).__name__} cannot run packed rows unchanged; use layout='padded' or 'auto'."
        )
    arranged = lay_out(checked, packed=packed)
    hidden, out = _run(
        model, arranged, fused=abilities.fused_head, predictions=predictions, temperature=entropy_temperature
    )
    results, first = [], 0
    for batch, own, predicting in zip(checked, arranged.own, arranged.predicting, strict=True):
        mask, span = batch.mask, slice(first, first + own.shape[0])
        first += own.shape[0]
        results.append(
            TokenOutputs(
                logps=_spread(out.logps[span], mask),
                mask=mask,
                predictions=_spread(out.predictions[span], mask) if out.predictions is not None else None,
                entropy=_spread(out.entropy[span], mask) if out.entropy is not None else None,
                states=hidden,
                own=own,
                predicting=predicting,
            )
        )
    return results


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    return values.new_zeros(mask.shape).masked_scatter(mask, values)


def unwrap(model: nn.Module) -> nn.Module:
    """The model without its DDP, FSDP, compile or accelerate wrappers."""
    from accelerate.utils import extract_model_from_parallel

    inner: nn.Module = extract_model_from_parallel(model)
    return inner


def _run(
    model: nn.Module, arranged: Layout, *, fused: bool, predictions: bool, temperature: float | None
) -> tuple[Tensor, HeadOutputs]:
    """Final hidden states (slots, hidden), detached, and the output layer's results for all counted tokens in order."""
    inputs: dict[str, Any] = {"input_ids": arranged.input_ids, "position_ids": arranged.position_ids}
    if arranged.attention_mask is not None:
        inputs["attention_mask"] = arranged.attention_mask
    elif _attention_of(unwrap(model)) == PACKED:
        inputs["attention_mask"] = no_mask(arranged.input_ids.device)
        inputs["packing"] = Packing(arranged.rows, arranged.width, arranged.slots)
    predicting, targets = torch.cat(arranged.predicting), torch.cat(arranged.targets)
    if not fused:
        return _run_plain(model, inputs, predicting, targets, predictions=predictions, temperature=temperature)
    found = head_of(unwrap(model))
    assert found is not None
    layer, _ = found
    caught: list[tuple[Tensor, HeadOutputs]] = []

    def instead_of_logits(states: Tensor) -> Tensor:
        again = head_of(unwrap(model))  # sharded parameters are whole only now
        assert again is not None
        flat = states.flatten(0, 1)
        out = target_logps(
            flat[predicting], again[1], targets, predictions=predictions, entropy_temperature=temperature
        )
        caught.append((flat.detach(), out))
        return out.logps[None, :, None]

    with _replaced(layer, instead_of_logits):
        outputs = model(**inputs, use_cache=False)
    if len(caught) != 1:
        raise RuntimeError(
            f"the output layer of {type(unwrap(model)).__name__} ran {len(caught)} times in one forward."
        )
    hidden, out = caught[0]
    head = found[1]
    if head.scale == 1.0 and head.softcap is None:
        # Through the model's own return value, so that wrappers which hook outputs see the gradient.
        out = HeadOutputs(outputs.logits.reshape(-1), out.predictions, out.entropy)
    return hidden, out


def _run_plain(
    model: nn.Module,
    inputs: Mapping[str, Any],
    predicting: Tensor,
    targets: Tensor,
    *,
    predictions: bool,
    temperature: float | None,
) -> tuple[Tensor, HeadOutputs]:
    inputs = {key: value for key, value in inputs.items() if key != "position_ids"}
    wanted = {"output_hidden_states": True} if hasattr(unwrap(model), "config") else {}
    outputs = model(**inputs, **wanted)
    logits = outputs.logits.flatten(0, 1)[predicting]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    states = getattr(outputs, "hidden_states", None)
    hidden = states[-1].flatten(0, 1).detach() if states else logits.new_zeros(outputs.logits.shape[:2].numel(), 0)
    entropy = None
    if temperature is not None:
        with torch.no_grad():
            entropy = torch.distributions.Categorical(logits=logits / temperature).entropy()
    logps = logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    return hidden, HeadOutputs(logps, logits.argmax(-1) if predictions else None, entropy)


@contextlib.contextmanager
def _replaced(layer: nn.Module, forward: Any) -> Iterator[None]:
    before = layer.__dict__.get("forward")
    layer.forward = forward
    try:
        yield
    finally:
        if before is None:
            del layer.forward
        else:
            layer.forward = before


def abilities_of(model: nn.Module, device: torch.device) -> Abilities:
    """Find out, once per model, whether the fused output layer and packed rows leave its numbers unchanged.

    Runs three forward passes over two short rows without gradient. A model that can pack is left with the packed attention
    function switched on, which acts as `sdpa` for every other call.
    """
    inner = unwrap(model)
    known = _abilities.get(inner)
    if known is None:
        was_training = model.training
        model.eval()
        try:
            with torch.no_grad():
                known = _try_out(model, inner, device)
        finally:
            model.train(was_training)
        _abilities[inner] = known
        logger.info("forward pass of %s: %s", type(inner).__name__, known)
    return known


def _try_out(model: nn.Module, inner: nn.Module, device: torch.device) -> Abilities:
    config = getattr(inner, "config", None)
    if config is None or head_of(inner) is None:
        return Abilities(fused_head=False, packed=False)
    vocabulary = int(getattr(config.get_text_config(), "vocab_size", 0)) or 2
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, (2, 9), generator=generator).to(device)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, 6:] = False
    batch = TokenBatch(ids, mask, ids.masked_fill(~mask, IGNORE_INDEX))

    def logps(*, fused: bool, packed: bool) -> Tensor:
        arranged = lay_out([batch], packed=packed)
        return _run(model, arranged, fused=fused, predictions=False, temperature=None)[1].logps.float()

    plain = logps(fused=False, packed=False)
    fused = _agrees(plain, lambda: logps(fused=True, packed=False), inner)
    packed = False
    if _enable_packing(inner):
        packed = _agrees(plain, lambda: logps(fused=fused, packed=True), inner)
        if not packed:
            _disable_packing(inner)
    return Abilities(fused_head=fused, packed=packed)


def _agrees(plain: Tensor, attempt: Any, inner: nn.Module) -> bool:
    half = next(inner.parameters()).dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled(
        plain.device.type
    )
    tolerance = 0.1 if half else 1e-3
    try:
        other = attempt()
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        logger.info("shortcut not available for %s: %s", type(inner).__name__, error)
        return False
    return other.shape == plain.shape and bool(((other - plain).abs() <= tolerance * (1 + plain.abs())).all())


def _attention_of(inner: nn.Module) -> str | None:
    return getattr(getattr(inner, "config", None), "_attn_implementation", None)


def _enable_packing(inner: nn.Module) -> bool:
    """Switch on packed attention where the model's attention is pluggable; flash attention packs by itself."""
    config: Any = inner.config
    current = config._attn_implementation
    if isinstance(current, str) and current.startswith("flash_attention"):
        return True
    if current not in ("sdpa", PACKED) or not getattr(inner, "_supports_attention_backend", False):
        return False
    register()
    config._attn_implementation = PACKED
    return True


def _disable_packing(inner: nn.Module) -> None:
    config: Any = inner.config
    if config._attn_implementation == PACKED:
        config._attn_implementation = "sdpa"
