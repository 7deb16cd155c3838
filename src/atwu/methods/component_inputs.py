"""Inputs of weightings and losses. Importing this module does not import torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    forget_text: Sequence[Example] | None
    """Forget rows as text; None if they were given as tokens."""
    retain_text: Sequence[Example] | None
    ref_logps: Callable[[], list[FloatArray]]
    """Returns the log-probabilities of the counted tokens under the original model, one array per forget row."""
    logps_of: Callable[[str], list[FloatArray]]
    """Returns the same for the model in the given folder."""
    evidence: Callable[[], list[FloatArray]] | None = None
    """Returns the evidence of the units of each forget answer (`weightings.contrast`); None where no model is at hand."""

    @property
    def answers(self) -> Iterator[str]:
        return (row.answer for row in self.forget_text or ())


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
