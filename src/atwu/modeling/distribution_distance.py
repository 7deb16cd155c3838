"""Compute distances between next-token distributions without materializing all logits.

A distance is a pure function of two sets of log-probabilities. It is applied to blocks of tokens; the backward pass
recomputes each block. The reference distribution comes from cached final hidden states and an output layer (exact), or from
logits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from atwu.modeling.head import OutputHead, accumulate_dtype, blocks, widened

DISTANCE_BLOCK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 24}
"""Logits per block by device type (8 MiB and 64 MiB in float32; a distance allocates about ten such tensors). Smaller blocks
make matrix products less efficient; on a CPU there is no cost down to 64 tokens per block."""
MIN_BLOCK_TOKENS = 32
"""Tokens per block at least, for large vocabularies: every block reads the whole output layer. On a CPU, KL divergence and its
gradient at a vocabulary of 262,144 take 3.1 times as long with 8 tokens per block, and 4 % less with 64."""

Distance = Callable[[Tensor, Any, Any], Tensor]
"""Takes log-probabilities (tokens, vocabulary), those of the reference or None, and token ids (tokens, k) or None; returns
(tokens,). Both are logits instead if the comparison says so."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """The reference distribution, without gradient."""

    states: Tensor
    """Final hidden states that predict each token, (tokens, hidden); without `head`, the logits."""
    head: OutputHead | None

    def logits(self, span: slice, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the logits of the tokens in `span`, (tokens, vocabulary), from a matrix product in `dtype`."""
        states = self.states[span].to(device)
        return states if self.head is None else self.head.logits(states, dtype)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A distance to compute at every counted token of one batch."""

    distance: Distance
    teacher: Teacher | None = None
    ids: Tensor | None = None
    """Token ids that the distance refers to, (tokens, k)."""
    slope: Distance | None = None
    """Squared norm of the gradient of the distance in the logits of a token; None if it is not used."""
    of_logits: bool = False
    """Whether distance and slope compare logits instead of log-probabilities."""

    def of(self, logits: Tensor, logps: Tensor, span: slice, dtype: torch.dtype) -> Tensor:
        """Compute distance and slope (0 without) of the tokens in `span` from their logits, shape (tokens, 2).

        `dtype` is that of matrix products; a slope has no gradient.
        """
        reference = None
        if self.teacher is not None:
            with torch.no_grad():
                reference = widened(self.teacher.logits(span, logits.device, dtype))
                reference = reference if self.of_logits else reference.log_softmax(dim=-1)
        own = widened(logits) if self.of_logits else logps
        ids = None if self.ids is None else self.ids[span].to(logits.device)
        distance = self.distance(own, reference, ids)
        slope = torch.zeros_like(distance) if self.slope is None else self.slope(own.detach(), reference, ids)
        return torch.stack([distance, slope], dim=1)


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The comparisons of several batches with concatenated tokens, and the target tokens."""

    targets: Tensor
    """Token ids, (tokens,)."""
    segments: tuple[tuple[slice, Comparison | None], ...]
    """Token range and comparison of each batch."""

    def of(self, logits: Tensor, span: slice, dtype: torch.dtype) -> Tensor:
        """Compute the result of `compare` for the tokens in `span` from their logits."""
        logps = widened(logits).log_softmax(dim=-1)
        own = logps.gather(1, self.targets[span][:, None]).squeeze(1)
        pieces = []
        for place, comparison in self.segments:
            start, stop = max(span.start, place.start), min(span.stop, place.stop)
            if start >= stop:
                continue
            rows = slice(start - span.start, stop - span.start)
            within = slice(start - place.start, stop - place.start)
            pieces.append(
                logps.new_zeros(stop - start, 2)
                if comparison is None
                else comparison.of(logits[rows], logps[rows], within, dtype)
            )
        return torch.cat([own[:, None], torch.cat(pieces)], dim=1)

    def ready(self, dtype: torch.dtype) -> Comparisons:
        """Return a copy with the teachers' output layer, of which all share one, in the dtype of matrix products."""
        cast = functools.cache(lambda weight: weight.to(dtype))

        def converted(each: Comparison | None) -> Comparison | None:
            if each is None or each.teacher is None or each.teacher.head is None:
                return each
            head = dataclasses.replace(each.teacher.head, weight=cast(each.teacher.head.weight))
            return dataclasses.replace(each, teacher=dataclasses.replace(each.teacher, head=head))

        return dataclasses.replace(self, segments=tuple((place, converted(each)) for place, each in self.segments))


def compare(hidden: Tensor, head: OutputHead, comparisons: Comparisons, *, block_elements: int | None = None) -> Tensor:
    """Compute log-probability and distance at every token, differentiable in hidden states and output layer.

    Args:
        comparisons: distances to compute, over the same tokens.

    Returns:
        Shape (tokens, 3): log-probability of the target, distance and slope (0 without one); float32 or better.
    """
    device = hidden.device.type
    elements, vocabulary = DISTANCE_BLOCK_ELEMENTS.get(device, 1 << 24), head.weight.shape[0]
    block = max(1, block_elements // vocabulary) if block_elements else max(MIN_BLOCK_TOKENS, elements // vocabulary)
    dtype = head.product_dtype(device)
    values: Tensor = _Compare.apply(hidden, head.weight, head.bias, comparisons, head.scale, head.softcap, dtype, block)
    return values


class _Compare(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        comparisons: Comparisons,
        scale: float,
        softcap: float | None,
        dtype: torch.dtype,
        block: int,
    ) -> Tensor:
        head, ready = OutputHead(weight.to(dtype), bias, scale, softcap), comparisons.ready(dtype)
        values = [ready.of(head.logits(hidden[span], dtype), span, dtype) for span in blocks(hidden.shape[0], block)]
        ctx.save_for_backward(hidden, weight, bias)
        ctx.comparisons, ctx.scale, ctx.softcap, ctx.dtype, ctx.block = comparisons, scale, softcap, dtype, block
        return torch.cat(values) if values else hidden.new_zeros(0, 3, dtype=accumulate_dtype(hidden.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: FunctionCtx) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        head = OutputHead(weight.to(ctx.dtype), bias, ctx.scale, ctx.softcap)
        comparisons = ctx.comparisons.ready(ctx.dtype)
        wide = accumulate_dtype(hidden.dtype)
        d_hidden = torch.empty_like(hidden) if need_hidden else None
        d_weight = torch.zeros_like(weight, dtype=wide) if need_weight else None
        d_bias = torch.zeros_like(bias, dtype=wide) if need_bias else None
        for span in blocks(hidden.shape[0], ctx.block):
            product = head.product(hidden[span], ctx.dtype)
            with torch.enable_grad():
                product.requires_grad_()
                values = comparisons.of(head.finish(product), span, ctx.dtype)
                (d_product,) = torch.autograd.grad(values, product, grad[span].to(values.dtype))
            if d_bias is not None:
                d_bias += d_product.sum(dim=0)
            d_product = d_product.to(ctx.dtype)
            with torch.autocast(hidden.device.type, enabled=False):
                if d_hidden is not None:
                    d_hidden[span] = (d_product @ head.weight).to(hidden.dtype)
                if d_weight is not None:
                    d_weight += d_product.T @ hidden[span].to(ctx.dtype)
        d_weight = None if d_weight is None else d_weight.to(weight.dtype)
        d_bias = None if d_bias is None else d_bias.to(bias.dtype)
        return (d_hidden, d_weight, d_bias, *(None,) * 5)
