"""Compute distances between next-token distributions without materializing all logits.

A distance is a pure function of two sets of log-probabilities. It is applied to blocks of tokens, of which several share a
matrix product; the backward pass recomputes both. The reference distribution comes from cached final hidden states and an
output layer (exact), or from logits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from atwu.modeling.head import OutputHead, accumulate_dtype, blocks, widen

DISTANCE_BLOCK_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 24}
"""Logits per block by device type (2 MiB and 64 MiB in float32); a distance allocates about ten such tensors. On a CPU, four
times as many take as long."""
PRODUCT_ELEMENTS = {"cpu": 1 << 25}
"""Logits per matrix product by device type (64 MiB in bfloat16), at least one block: each product reads the whole output layer
and is added to the whole of its gradient. With products of two million logits, KL divergence and its gradient at 634 tokens
and a vocabulary of 49,152 take 2.6 times as long on a CPU in bfloat16."""

Distance = Callable[[Tensor, Any, Any], Tensor]
"""Takes log-probabilities (tokens, vocabulary), those of the reference or None, and token ids (tokens, k) or None; returns
(tokens,). Both are logits instead if the comparison says so."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """The reference distribution, without gradient."""

    states: Tensor
    """Final hidden states that predict each token, (tokens, hidden); without `head`, the logits."""
    head: OutputHead | None
    multiplied: bool = False
    """Whether `states` are already multiplied with the weight of `head`."""

    def part(self, tokens: slice, device: torch.device, dtype: torch.dtype) -> Teacher:
        """Return the teacher of some tokens, with the matrix product computed in `dtype`."""
        states = self.states[tokens].to(device)
        if self.head is not None:
            states = self.head.product(states, dtype)
        return Teacher(states, self.head, multiplied=True)

    def logits(self, span: slice, dtype: torch.dtype) -> Tensor:
        """Return the logits of the tokens in `span`, (tokens, vocabulary); a matrix product is in `dtype`."""
        states = self.states[span]
        if self.head is None:
            return widen(states)
        if not self.multiplied:
            states = self.head.product(states, dtype)
        return self.head.finish(states)


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

    def part(self, tokens: slice, device: torch.device, dtype: torch.dtype) -> Comparison:
        """Return the comparison of some tokens."""
        teacher = ids = None
        if self.teacher is not None:
            teacher = self.teacher.part(tokens, device, dtype)
        if self.ids is not None:
            ids = self.ids[tokens].to(device)
        return dataclasses.replace(self, teacher=teacher, ids=ids)

    def of(self, logits: Tensor, logps: Tensor, span: slice, dtype: torch.dtype) -> Tensor:
        """Compute distance and slope (0 without) of the tokens in `span` from their logits, shape (tokens, 2).

        `dtype` is that of matrix products; a slope has no gradient.
        """
        reference = None
        if self.teacher is not None:
            with torch.no_grad():
                reference = self.teacher.logits(span, dtype)
                if not self.of_logits:
                    reference = reference.log_softmax(dim=-1)
        own, ids = logps, None
        if self.of_logits:
            own = logits
        if self.ids is not None:
            ids = self.ids[span]
        distance = self.distance(own, reference, ids)
        slope = torch.zeros_like(distance)
        if self.slope is not None:
            slope = self.slope(own.detach(), reference, ids)
        return torch.stack([distance, slope], dim=1)


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The comparisons of several batches with concatenated tokens, and the target tokens."""

    targets: Tensor
    """Token ids, (tokens,)."""
    segments: tuple[tuple[slice, Comparison | None], ...]
    """Token range and comparison of each batch."""

    def part(self, tokens: slice, dtype: torch.dtype) -> Comparisons:
        """Return the comparisons of some tokens, with the teachers' matrix products computed in `dtype`."""
        device = self.targets.device
        segments = (
            (place, None if comparison is None else comparison.part(within, device, dtype))
            for place, within, comparison in self._segments(tokens)
        )
        return Comparisons(self.targets[tokens], tuple((place, comparison) for place, comparison in segments))

    def of(self, logits: Tensor, span: slice, dtype: torch.dtype) -> Tensor:
        """Compute the result of `compare` for the tokens in `span` from their logits."""
        logits = widen(logits)
        logps = logits.log_softmax(dim=-1)
        own = logps.gather(1, self.targets[span][:, None]).squeeze(1)
        pieces = []
        for rows, within, comparison in self._segments(span):
            if comparison is None:
                pieces.append(logps.new_zeros(rows.stop - rows.start, 2))
            else:
                pieces.append(comparison.of(logits[rows], logps[rows], within, dtype))
        return torch.cat([own[:, None], torch.cat(pieces)], dim=1)

    def _segments(self, span: slice) -> Iterator[tuple[slice, slice, Comparison | None]]:
        """Yield the segments within a span, by their places in the span and in the segment."""
        for place, comparison in self.segments:
            start, stop = max(span.start, place.start), min(span.stop, place.stop)
            if start < stop:
                within = slice(start - place.start, stop - place.start)
                yield slice(start - span.start, stop - span.start), within, comparison

    def ready(self, dtype: torch.dtype) -> Comparisons:
        """Return a copy with the teachers' output layer, of which all share one, in the dtype of matrix products."""
        cast = functools.cache(lambda weight: weight.to(dtype))  # one copy, though each comparison has the layer

        def converted(comparison: Comparison | None) -> Comparison | None:
            if comparison is None or comparison.teacher is None or comparison.teacher.head is None:
                return comparison
            head = dataclasses.replace(comparison.teacher.head, weight=cast(comparison.teacher.head.weight))
            return dataclasses.replace(comparison, teacher=dataclasses.replace(comparison.teacher, head=head))

        return dataclasses.replace(
            self, segments=tuple((place, converted(comparison)) for place, comparison in self.segments)
        )


def compare(
    hidden: Tensor,
    head: OutputHead,
    comparisons: Comparisons,
    *,
    block_elements: int | None = None,
    product_elements: int | None = None,
) -> Tensor:
    """Compute log-probability and distance at every token, differentiable in hidden states and output layer.

    Args:
        comparisons: distances to compute, over the same tokens.
        block_elements: logits per block; by default `DISTANCE_BLOCK_ELEMENTS`.
        product_elements: logits per matrix product; by default `PRODUCT_ELEMENTS`.

    Returns:
        Shape (tokens, 3): log-probability of the target, distance and slope (0 without one); float32 or better.
    """
    device = hidden.device.type
    elements, vocabulary = DISTANCE_BLOCK_ELEMENTS.get(device, 1 << 24), head.weight.shape[0]
    block = max(1, (block_elements or elements) // vocabulary)
    product = max(block, (product_elements or PRODUCT_ELEMENTS.get(device, 0)) // vocabulary)
    dtype = head.product_dtype(device)
    values: Tensor = _Compare.apply(
        hidden, head.weight, head.bias, comparisons, head.scale, head.softcap, dtype, block, product
    )
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
        product_tokens: int,
    ) -> Tensor:
        # Converted once: every product of a block reads the whole layer.
        head, ready = OutputHead(weight.to(dtype), bias, scale, softcap), comparisons.ready(dtype)
        values = []
        for tokens in blocks(hidden.shape[0], product_tokens):
            part, product = ready.part(tokens, dtype), head.product(hidden[tokens], dtype)
            values += [part.of(head.finish(product[span]), span, dtype) for span in blocks(product.shape[0], block)]
        ctx.save_for_backward(hidden, weight, bias)
        ctx.comparisons, ctx.scale, ctx.softcap, ctx.dtype = comparisons, scale, softcap, dtype
        ctx.block, ctx.product_tokens = block, product_tokens
        if values:
            return torch.cat(values)
        return hidden.new_zeros(0, 3, dtype=accumulate_dtype(hidden.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: FunctionCtx) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        head = OutputHead(weight.to(ctx.dtype), bias, ctx.scale, ctx.softcap)
        comparisons = ctx.comparisons.ready(ctx.dtype)
        wide = accumulate_dtype(hidden.dtype)
        d_hidden = torch.empty_like(hidden) if need_hidden else None
        d_weight: Tensor | None = None
        d_bias = torch.zeros_like(bias, dtype=wide) if need_bias else None
        for tokens in blocks(hidden.shape[0], ctx.product_tokens):
            part, product = comparisons.part(tokens, ctx.dtype), head.product(hidden[tokens], ctx.dtype)
            for span in blocks(product.shape[0], ctx.block):
                # Logits are computed again instead of kept: (tokens x vocabulary) would be the largest tensor of a step.
                with torch.enable_grad():
                    own = widen(product[span]).detach().requires_grad_()
                    values = part.of(head.finish(own), span, ctx.dtype)
                    (d_own,) = torch.autograd.grad(values, own, grad[tokens][span].to(values.dtype))
                if d_bias is not None:
                    d_bias += d_own.sum(dim=0)
                product[span] = d_own  # these logits are not read again
            with torch.autocast(hidden.device.type, enabled=False):
                if d_hidden is not None:
                    d_hidden[tokens] = (product @ head.weight).to(hidden.dtype)
                if need_weight:
                    added = product.T @ hidden[tokens].to(ctx.dtype)
                    d_weight = added.to(wide) if d_weight is None else d_weight.add_(added)
        if need_weight:
            d_weight = torch.zeros_like(weight) if d_weight is None else d_weight.to(weight.dtype)
        d_bias = None if d_bias is None else d_bias.to(bias.dtype)
        # The other arguments of `forward` have no gradient.
        return (d_hidden, d_weight, d_bias, *(None,) * 6)
