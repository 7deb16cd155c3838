"""What weightings and losses are given, and the averages of the values that losses return.

Importing this module does not import torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.data.alternates import Alternates
    from atwu.data.arrays import FloatArray
    from atwu.data.encode import EncodedRow
    from atwu.data.schema import Example
    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Inputs of a forget loss; tensors of shape (batch, tokens), 0 where `mask` is False."""

    logps: Tensor
    """log p(x_t | x_<t) under the current model."""
    mask: Tensor
    """True on counted tokens."""
    ref_logps: Tensor | None = None
    """The same log-probabilities under the original model, if the loss needs them."""
    preferred: Tensor | None = None
    """Log ratio of the preferred answer between current and original model, shape (batch,)."""
    alternate_logps: Tensor | None = None
    """log p of the tokens of the alternate answer, if the loss needs one, shape (batch, alternate tokens)."""
    alternate_mask: Tensor | None = None
    """True on counted tokens of the alternate answer, same shape."""
    distance: Tensor | None = None
    """Value of the loss's own distance at each token."""
    learned: bool = False
    """Whether the weights are learned scores."""

    @property
    def reference_logps(self) -> Tensor:
        """`ref_logps`, for a loss whose `original` has them."""
        assert self.ref_logps is not None
        return self.ref_logps

    def constant(self) -> LossTerms:
        """Return the terms without gradient, for a scorer step, which must not train the model."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        tensors = {name: value.detach() for name, value in values.items() if hasattr(value, "detach")}
        return dataclasses.replace(self, **tensors)


@dataclass(frozen=True, slots=True)
class WeightingContext:
    """Inputs of a token weighting in one step; per-token tensors have shape (batch, tokens)."""

    out: TokenOutputs
    """Output of the forward pass for the forget rows."""
    forget: TokenBatch
    scores: Tensor | None = None
    """Learned scores, shape (counted tokens,); None without a scorer."""

    @property
    def logps(self) -> Tensor:
        """log p(x_t | x_<t) under the current model, 0 outside the mask."""
        return self.out.logps

    @property
    def mask(self) -> Tensor:
        """True on counted tokens."""
        return self.out.mask

    @property
    def entropy(self) -> Tensor:
        """Entropy of the next-token distribution, for a weighting with an `entropy_temperature`."""
        assert self.out.entropy is not None
        return self.out.entropy


@dataclass(frozen=True, slots=True)
class PrecomputeContext:
    """Inputs of a precomputed weighting. Expensive inputs are functions, so they are computed only if used."""

    forget: Sequence[EncodedRow]
    retain: Sequence[EncodedRow] | None
    forget_text: Sequence[Example]
    """The forget rows as text."""
    retain_text: Sequence[Example] | None
    ref_logps: Callable[[], list[FloatArray]]
    """Returns the log-probabilities of the counted tokens under the original model, one array per forget row."""
    logps_of: Callable[[str], list[FloatArray]]
    """Returns the same for the model in the given folder."""
    evidence: Callable[[], list[FloatArray]] | None = None
    """Returns the evidence of the units of each forget answer (`weightings.contrast`); None where no model is at hand."""
    ref_logps_asked: Callable[[Callable[[str], str]], list[FloatArray]] | None = None
    """Returns `ref_logps` with another question in each row, which the function makes from the row's own; None likewise."""


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """Rows to whose questions a loss wants other answers."""

    examples: Sequence[Example]
    tokenizer: Any
    what: Literal["forget", "retain"]
    epochs: int
    """Passes over the rows with a draw of their own."""
    seed: int
    max_length: int
    system: str | None
    plain_text: Sequence[int] = ()
    """Places of texts without a question."""

    def alternates(self, *, own: bool = False, refusal: str | None = None) -> Alternates:
        """Return the answers of the column `alternate`, drawn refusals where there are none, or one refusal for all rows."""
        from atwu.data.alternates import alternates, check_alternates

        check_alternates(self.examples, self.what, own=own, refuse=refusal is not None)
        return alternates(self.examples, refusal=refusal, what=self.what, **self._draws())

    def refusal_rows(self, refusal: str) -> Alternates:
        """Return rows with a refusal, half of them after the first words of the answer."""
        from atwu.data.alternates import refusal_rows

        if self.plain_text:
            raise ValueError(
                f"{self.what} set, row {self.plain_text[0] + 1}: a plain text row has no question to refuse; use another "
                "forget loss."
            )
        return refusal_rows(self.examples, refusal=refusal, **self._draws())

    def _draws(self) -> dict[str, Any]:
        return {
            "tokenizer": self.tokenizer,
            "epochs": self.epochs,
            "seed": self.seed,
            "max_length": self.max_length,
            "system": self.system,
        }


def _no_reference() -> Reference:
    from atwu.modeling.reference import Reference  # imports torch, which this module does not

    return Reference()


@dataclass(frozen=True, slots=True)
class LossInputs:
    """Inputs of a loss besides the rows; per-token tensors are flat, in row-major order of the forget mask."""

    reference: Reference = dataclasses.field(default_factory=_no_reference)
    fixed_weights: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """Weights computed before training, by name of the weighting, shape (tokens,)."""
    token_weights: Tensor | None = None
    """Weights that replace the method's own, shape (batch, length), not shifted."""
    score_offset: Tensor | None = None
    """Offset added to the logits of learned scores, shape (tokens,)."""
    refusal_ids: tuple[int, ...] = ()
    """Token ids of JensUn's refusal."""
    refusal_direction: Tensor | None = None
    """LUNAR's direction towards refused questions, shape (hidden,)."""


@dataclass(frozen=True, slots=True)
class NormalizationCounts:
    """Denominators for a micro-batch that is one piece of a larger batch; None uses the counts of the micro-batch."""

    forget_tokens: float | None = None
    averaged_tokens: float | None = None
    """Forget tokens that the mean of the forget loss is taken of (`ForgetLoss.averaged`)."""
    retain_tokens: float | None = None
    forget_rows: float | None = None
    retain_rows: float | None = None
    selected: float | None = None
    """Total token weight, for losses that average over selected tokens."""
    labelled_rows: float | None = None
    """Rows with both labelled and unlabelled tokens, for the logged AUROC."""


# Averages. `values` has one value per token, shape (batch, tokens), or per sequence, shape (batch,); `mask` is True on counted
# tokens. `count` is a denominator to use instead of this batch's own, so that a mean can span several micro-batches.

Reduction = Literal["tokens", "selected", "sequences", "row_means"]
"""How values are averaged: over tokens; over the total weight; over sequences; or first over the tokens of each row, then
over rows."""


def reduce_loss(
    values: Tensor,
    weights: Tensor,
    mask: Tensor,
    reduction: Reduction,
    *,
    tokens: float | None = None,
    rows: float | None = None,
    selected: float | None = None,
) -> Tensor:
    """Average the values of a loss; the counts are denominators of the whole batch, default this micro-batch."""
    if reduction == "sequences":
        return sequence_mean(values, count=rows)
    if reduction == "row_means":
        return sequence_mean(row_means(values, mask), count=rows)  # short and long answers have equal weight
    if reduction == "selected":
        return selected_mean(values, weights, mask, count=selected)
    return token_mean(values, mask, count=tokens)


def token_mean(values: Tensor, mask: Tensor, *, count: float | None = None) -> Tensor:
    """Mean of `values` over the counted tokens of the whole batch, a scalar."""
    total = (values * mask).sum()
    if count is None:
        return total / mask.sum().clamp(min=1)
    return total / count


def selected_mean(values: Tensor, weights: Tensor, mask: Tensor, *, count: float | None = None) -> Tensor:
    """Sum of already weighted `values` over the total weight, at least 1, a scalar.

    Args:
        weights: the 0/1 selection contained in `values`, same shape.
        count: total weight to divide by instead of this batch's own.
    """
    total = (values * mask).sum()
    # At least 1: in a batch without a selected token the total is 0, and so is the loss.
    if count is None:
        return total / (weights * mask).sum().clamp(min=1)
    return total / max(count, 1)


def sequence_mean(values: Tensor, *, count: float | None = None) -> Tensor:
    """Mean of one value per sequence, a scalar."""
    if count is None:
        count = max(values.shape[0], 1)
    return values.sum() / count


def row_means(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the counted tokens of each row, shape (batch,); 0 for a row without any."""
    return (values * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def shares(weights: Tensor, mask: Tensor) -> Tensor:
    """Normalize weights within each row to mean 1, `n w_t / sum of w`; shape of `weights`.

    Args:
        weights: token weights >= 0, shape (batch, tokens).
        mask: True on counted tokens, same shape; n per row.
    """
    # A row whose weights are all 0 has shares of 0, instead of 0 / 0.
    counted = weights * mask
    return counted * mask.sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp(min=1e-8)


def first_token_half(values: Tensor, mask: Tensor) -> Tensor:
    """Weighted mean of a row's values, half for the first counted token and half for all others together.

    Args:
        mask: True on counted tokens, same shape; a row with a single one has its value, a row without any 0.
    """
    first = mask & (mask.cumsum(-1) == 1)
    others = mask & ~first
    rest = (values * others).sum(-1) / others.sum(-1).clamp(min=1)
    head = (values * first).sum(-1)
    # head / 2 + rest / 2; an answer of one token has no rest, and its token all of the weight.
    return head + (rest - head) * others.any(-1) / 2
