"""Compute log-probabilities of target tokens from hidden states without the (tokens x vocabulary) logits.

Output layer and log-sum-exp run in blocks over the vocabulary. The forward pass stores one number per token and the last
block; the backward pass recomputes the other blocks and writes each slice of the weight gradient once. No tensor has more
than `block_elements` logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

HEAD_BLOCK_ELEMENTS = 1 << 23
"""Logits per block (32 MiB in float32); on a CPU, half as many cost 1 % of a training step."""


def accumulate_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums and exponentials: float64 for float64, otherwise float32."""
    if dtype == torch.float64:
        return dtype
    return torch.float32


def widen(logits: Tensor) -> Tensor:
    """Return logits in the dtype of sums and exponentials."""
    return logits.to(accumulate_dtype(logits.dtype))


@dataclass(frozen=True, slots=True)
class OutputHead:
    """The map from final hidden states to logits: `softcap(scale * (W h + b))`."""

    weight: Tensor
    """Shape (vocabulary, hidden)."""
    bias: Tensor | None = None
    """Shape (vocabulary,)."""
    scale: float = 1.0
    """Constant factor on the logits (Cohere, Granite)."""
    softcap: float | None = None
    """`c * tanh(z / c)` on the logits (Gemma 2, RecurrentGemma)."""

    def product(self, states: Tensor, dtype: torch.dtype) -> Tensor:
        """Compute `W h` in `dtype`; shape (tokens, vocabulary)."""
        # The dtype is decided by the caller; autocast would cast again, also what is float32 on purpose.
        with torch.autocast(states.device.type, enabled=False):
            return states.to(dtype) @ self.weight.to(dtype).T

    def finish(self, product: Tensor) -> Tensor:
        """Turn `W h` into logits, in float32 or wider."""
        logits = widen(product)
        if self.bias is not None:
            logits = logits + self.bias
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.softcap is None:
            return logits
        return self.softcap * torch.tanh(logits / self.softcap)

    def logits(self, states: Tensor, dtype: torch.dtype, rows: slice = slice(None)) -> Tensor:
        """Compute the logits of some vocabulary rows by a matrix product in `dtype`; float32 or wider."""
        bias = None if self.bias is None else self.bias[rows]
        head = OutputHead(self.weight[rows], bias, self.scale, self.softcap)
        return head.finish(head.product(states, dtype))

    def frozen(self) -> OutputHead:
        """Return a detached copy of a layer that will change."""
        bias = None if self.bias is None else self.bias.detach().clone()
        return OutputHead(self.weight.detach().clone(), bias, self.scale, self.softcap)

    def product_dtype(self, device: str) -> torch.dtype:
        """Return the dtype of the matrix product: the autocast dtype under autocast, otherwise that of the weight."""
        if torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
        return self.weight.dtype


@dataclass(frozen=True, slots=True)
class HeadOutputs:
    """Per-token results of the output layer; every tensor has shape (tokens,)."""

    logps: Tensor
    """Natural log-probability of the target, float32 or wider, differentiable."""
    predictions: Tensor | None
    """Index of the largest logit (the first one on ties), or None if not requested."""
    entropy: Tensor | None
    """Entropy in nats of softmax(logits / temperature), without gradient, or None if not requested."""
    variance: Tensor | None = None
    """Variance of the log-probability under the same softmax, without gradient, or None if not requested."""


def target_logps(
    hidden: Tensor,
    head: OutputHead,
    targets: Tensor,
    *,
    predictions: bool = False,
    entropy_temperature: float | None = None,
    variance: bool = False,
    block_elements: int = HEAD_BLOCK_ELEMENTS,
) -> HeadOutputs:
    """Compute log softmax(head(hidden))[target] for every token, exactly and differentiably.

    Under autocast, matrix products use the autocast dtype, as in the model's own output layer; sums and exponentials are
    always float32 (float64 for float64 input).

    Args:
        hidden: states that predict the targets, shape (tokens, hidden).
        entropy_temperature: also return the entropy at this temperature > 0.
        variance: also return the variance of the log-probability at that temperature (minus its mean is the entropy).
    """
    if variance and entropy_temperature is None:
        raise ValueError("variance needs entropy_temperature, the temperature of its distribution.")
    dtype = head.product_dtype(hidden.device.type)
    vocabulary, largest = head.weight.shape[0], max(1, block_elements // max(1, hidden.shape[0]))
    block = -(-vocabulary // -(-vocabulary // largest))  # blocks of equal size
    # By position: `apply` takes no keyword arguments.
    outputs = _TargetLogps.apply(
        hidden,
        head.weight,
        head.bias,
        targets,
        head.scale,
        head.softcap,
        dtype,
        block,
        predictions,
        entropy_temperature,
        variance,
    )
    return HeadOutputs(*outputs)


def output_layer(model: nn.Module) -> nn.Module | None:
    """Return the plain output layer of a causal model; None if it is adapted, quantized or missing."""
    getter = getattr(model, "get_output_embeddings", None)
    if getter is None:
        return None
    layer = getter()
    weight = getattr(layer, "weight", None)
    if not isinstance(layer, nn.Module) or not isinstance(weight, Tensor) or not weight.is_floating_point():
        return None
    if any(True for _ in layer.children()):  # an adapter wraps the layer, whose own weight is not all that it computes
        return None
    return layer


def describe_head(layer: nn.Module, config: Any) -> OutputHead:
    """Describe an output layer; must be called inside the forward pass, where sharded weights are gathered."""
    # Cohere multiplies by its constant, Granite divides by it. Gemma 2 and RecurrentGemma name the soft cap differently.
    scale = float(getattr(config, "logit_scale", None) or 1.0)
    divisor = getattr(config, "logits_scaling", None)
    if divisor:
        scale /= float(divisor)
    softcap = getattr(config, "final_logit_softcapping", None) or getattr(config, "logits_soft_cap", None)
    if softcap:
        softcap = float(softcap)
    weight, bias = layer.weight, getattr(layer, "bias", None)
    assert isinstance(weight, Tensor)
    return OutputHead(weight, bias, scale, softcap or None)


def blocks(size: int, block: int) -> Iterator[slice]:
    """Yield slices of length `block` that cover a range; the last one may be shorter."""
    for start in range(0, size, block):
        yield slice(start, min(start + block, size))


class _TargetLogps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        scale: float,
        softcap: float | None,
        dtype: torch.dtype,
        block: int,
        predictions: bool,
        temperature: float | None,
        variance: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        n, head = hidden.shape[0], OutputHead(weight, bias, scale, softcap)
        with torch.autocast(hidden.device.type, enabled=False):
            states = hidden.to(dtype)
            acc_dtype = accumulate_dtype(dtype)
            chosen = hidden.new_zeros(n, dtype=acc_dtype)
            # Running maximum and sum of exponentials relative to it, so that no exponential overflows.
            peak = hidden.new_full((n,), -torch.inf, dtype=acc_dtype)
            total = hidden.new_zeros(n, dtype=acc_dtype)
            best = entropy = spread = tempered = None
            if predictions:
                best = hidden.new_zeros(n, dtype=torch.long)
            if temperature is not None:
                tempered = _Tempered(torch.zeros_like(chosen), temperature, variance)
            for span in blocks(weight.shape[0], block):
                logits = head.logits(states, dtype, span)
                inside, columns = _inside(targets, span)
                chosen[inside] = logits[inside, columns]
                block_peak, block_best = logits.max(dim=-1)
                if best is not None:  # `>`: on ties the first token wins, as with argmax over the whole vocabulary
                    best = torch.where(block_peak > peak, block_best + span.start, best)
                new_peak = torch.maximum(peak, block_peak)
                if tempered is not None:
                    tempered.add(logits, peak, new_peak)
                total = total * torch.exp(peak - new_peak) + logits.sub_(new_peak[:, None]).exp_().sum(dim=-1)
                peak = new_peak
            log_total = peak + torch.log(total)
            if tempered is not None:
                entropy = tempered.entropy()
                if variance:
                    spread = tempered.variance()
        ctx.save_for_backward(hidden, weight, bias, targets, log_total)
        ctx.scale, ctx.softcap, ctx.dtype, ctx.block = scale, softcap, dtype, block
        # With a soft cap the slope needs the logits, which the in-place exponential has replaced.
        # The last block exists as exp(logits - peak); stored as probabilities, it needs no recomputation.
        keep = softcap is None and any(ctx.needs_input_grad)
        ctx.last = logits.mul_(torch.exp(peak - log_total)[:, None]) if keep else None
        ctx.mark_non_differentiable(*(output for output in (best, entropy, spread) if output is not None))
        return chosen - log_total, best, entropy, spread

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: FunctionCtx) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, log_total = ctx.saved_tensors
        head = OutputHead(weight, bias, ctx.scale, ctx.softcap)
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        with torch.autocast(hidden.device.type, enabled=False):
            states = hidden.to(ctx.dtype)
            grad = grad.to(log_total.dtype)
            d_hidden = torch.zeros_like(states, dtype=log_total.dtype) if need_hidden else None
            # Empty, not zeros: each block writes its own rows once.
            d_weight = torch.empty_like(weight) if need_weight else None
            d_bias = torch.empty_like(bias) if need_bias else None
            for span in blocks(weight.shape[0], ctx.block):
                slope = None
                if span.stop == weight.shape[0] and ctx.last is not None:
                    share, ctx.last = ctx.last, None
                else:
                    logits = head.logits(states, ctx.dtype, span)
                    slope = None if ctx.softcap is None else 1 - (logits / ctx.softcap) ** 2
                    share = logits.sub_(log_total[:, None]).exp_()
                # d logp / d logit = 1[target] - softmax, times the incoming gradient.
                d_logits = share.mul_(-grad[:, None])
                inside, columns = _inside(targets, span)
                d_logits[inside, columns] += grad[inside]
                if slope is not None:  # d tanh(z / c) = 1 - tanh^2
                    d_logits *= slope
                if ctx.scale != 1.0:
                    d_logits *= ctx.scale
                if d_bias is not None:
                    d_bias[span] = d_logits.sum(dim=0)
                d_logits = d_logits.to(ctx.dtype)
                rows = weight[span].to(ctx.dtype)
                if d_hidden is not None:
                    d_hidden += d_logits @ rows
                if d_weight is not None:
                    d_weight[span] = d_logits.T @ states
        d_hidden = d_hidden.to(hidden.dtype) if d_hidden is not None else None
        # The other arguments of `forward` have no gradient.
        return (d_hidden, d_weight, d_bias, *(None,) * 8)


class _Tempered:
    """Running sums for the entropy of softmax(logits / temperature) and its variance, block by block."""

    def __init__(self, zero: Tensor, temperature: float, variance: bool) -> None:
        self.temperature, self.total, self.moment = temperature, zero, zero
        self.second = zero if variance else None

    def add(self, logits: Tensor, peak: Tensor, new_peak: Tensor) -> None:
        """Add one block; `peak` is the largest logit before it, `new_peak` including it."""
        shifted = (logits - new_peak[:, None]) / self.temperature
        share = shifted.exp()
        # Before the first block the peak is -inf and the sums are 0, which 0 times inf would turn into nan.
        drop = torch.where(torch.isinf(peak), torch.zeros_like(peak), (peak - new_peak) / self.temperature)
        decay = torch.exp(drop)
        # Moments are relative to the current peak, for numerical precision, so they are shifted with it.
        if self.second is not None:
            moved = self.second + drop * (2 * self.moment + drop * self.total)
            self.second = decay * moved + (share * shifted * shifted).sum(dim=-1)
        self.moment = decay * (self.moment + drop * self.total) + (share * shifted).sum(dim=-1)
        self.total = decay * self.total + share.sum(dim=-1)

    def entropy(self) -> Tensor:
        return torch.log(self.total) - self.moment / self.total

    def variance(self) -> Tensor:
        assert self.second is not None
        return (self.second / self.total - (self.moment / self.total) ** 2).clamp(min=0)


def _inside(targets: Tensor, span: slice) -> tuple[Tensor, Tensor]:
    rows = ((targets >= span.start) & (targets < span.stop)).nonzero().squeeze(-1)
    return rows, targets[rows] - span.start
