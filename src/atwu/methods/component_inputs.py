"""What parts of a method get to look at. No torch is needed to read this."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.data.arrays import FloatArray
    from atwu.data.encode import EncodedRow
    from atwu.data.schema import Example
    from atwu.methods.weightings.token_scorer import TokenScorer
    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference


@dataclass(frozen=True, slots=True)
class LossTerms:
    """What a forget loss may look at; tensors of shape (batch, tokens), 0 where `mask` is False."""

    logps: Tensor
    """log p(x_t | x_<t) under the current model."""
    mask: Tensor
    """True on counted tokens."""
    ref_logps: Tensor | None = None
    """The same log-probabilities under the starting model, for a loss that wants them."""
    preferred: Tensor | None = None
    """Log ratio of the preferred answer between current and starting model, shape (batch,)."""
    distance: Tensor | None = None
    """What the loss's own distance measured at each token."""
    learned: bool = False
    """The weights are learned scores."""

    @property
    def reference(self) -> Tensor:
        """`ref_logps`, for a loss that wants them."""
        assert self.ref_logps is not None
        return self.ref_logps

    def constant(self) -> LossTerms:
        """The same without gradient."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return LossTerms(
            **{name: value.detach() if hasattr(value, "detach") else value for name, value in values.items()}
        )


@dataclass(frozen=True, slots=True)
class WeightingContext:
    """What a token weighting may look at in a step; per-token tensors have shape (batch, tokens)."""

    out: TokenOutputs
    """What the forward pass gave for the forget rows."""
    forget: TokenBatch
    scorer: TokenScorer | None = None
    score_offset: Tensor | None = None
    """Added to the logit of learned scores, (counted tokens,)."""

    @property
    def logps(self) -> Tensor:
        """log p(x_t | x_<t) under the current model, 0 off the mask."""
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
    """What a fixed weighting may look at. What is expensive is a call, so that only the weighting that uses it pays."""

    forget: Sequence[EncodedRow]
    retain: Sequence[EncodedRow] | None
    forget_text: Sequence[Example] | None
    """The forget rows as text; None where they came as tokens."""
    retain_text: Sequence[Example] | None
    ref_logps: Callable[[], list[FloatArray]]
    """Per forget row, log-probabilities of its counted tokens under the starting model."""
    logps_of: Callable[[str], list[FloatArray]]
    """The same under the model in a folder."""

    @property
    def answers(self) -> Iterator[str]:
        """Text of each forget answer."""
        return (row.answer for row in self.forget_text or ())


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What a loss may need besides the rows; per-token tensors are flat, in row-major order of the forget mask."""

    reference: Reference
    fixed_weights: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """Weights computed before training, by name of the weighting, (tokens,)."""
    token_weights: Tensor | None = None
    """Weights to use instead of the method's own, (batch, length), not shifted."""
    score_offset: Tensor | None = None
    """Added to the logit of learned scores, (tokens,)."""
    refusal_ids: tuple[int, ...] = ()
    """Tokens of the refusal that JensUn aims at."""


@dataclass(frozen=True, slots=True)
class NormalizationCounts:
    """Counts to divide by when a micro-batch is part of a larger batch; None means this batch's own."""

    forget_tokens: float | None = None
    retain_tokens: float | None = None
    forget_rows: float | None = None
    retain_rows: float | None = None
    selected: float | None = None
    """Total weight, for losses that average over selected tokens."""
    labelled_rows: float | None = None
    """Rows with secret and other tokens, for the agreement that is logged."""
