"""What a method is made of: a token weighting, a forget loss and a retain loss, each one object that owns all about it.

A part is a subclass with its hyperparameters as fields; it becomes an immutable dataclass by itself. Everything else
(configuration, command line, search, `atwu methods`, model card) is read off it. Reading this file needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform

from atwu.methods.component_options import Range, number, setting

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.methods.component_inputs import FloatArray, LossInputs, LossTerms, PrecomputeContext, WeightingContext
    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.distribution_distance import Comparison
    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference, ReferenceSpec

Reduction = Literal["tokens", "selected", "sequences", "row_means"]
"""Mean over tokens; over the total weight; over sequences; or over sequences of each one's mean over tokens."""

NEEDS: Mapping[str, str] = {
    "retain": "retain rows (--retain)",
    "labels": "secret tokens: forget_spans in the forget rows, or --forget-words",
    "scorer": "a token scorer, learned on the way (--scorer-..., --configuration)",
    "starting_logps": "log-probabilities of the starting model, read before training",
    "reference_logps": "log-probabilities of the starting model (--reference)",
    "reference_distributions": "next-token distributions of the starting model (--reference)",
    "reference_activations": "one layer's outputs of the starting model (--reference)",
    "alternates": "alternate answers: of the rows, else refusals drawn for every epoch",
    "auxiliary_models": "two auxiliary models (--auxiliary-forget, --auxiliary-retain), else trained and cached",
    "text": "forget rows as text, not as token ids",
    "retain_text": "retain rows as text, not as token ids",
    "noun_finder": "a noun finder (--noun-finder: a spaCy model, or simple)",
    "refusal": "a refusal to aim at (--refusal), and the tokenizer for it",
}
"""What a method may need besides forget rows."""


@dataclass_transform(frozen_default=True, field_specifiers=(number, setting))
class Component:
    """One part of a method."""

    formula: ClassVar[str] = ""
    """In one line, with the symbols of its numbers."""
    needs: ClassVar[Sequence[str]] = ()
    """What it needs besides forget rows: keys of `NEEDS`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True)(cls)

    def check(self) -> None:
        """Fail now, before anything is loaded, if the part cannot work here."""

    def reads_layer(self, layers: int) -> int | None:
        """Index of the decoder layer whose output it reads, in a model with that many; None for none."""
        return None


class TermWeights(Component):
    """The factors on the two terms of every method's loss."""

    forget_weight: float = number(
        1.0, symbol="γ", search=Range(0.1, 5.0), help="gamma: factor on the forget loss; larger forgets more"
    )
    retain_weight: float = number(
        1.0, symbol="α", search=Range(0.1, 5.0), help="alpha: factor on the retain loss; larger keeps more"
    )


class Weighting(Component):
    """A token weighting, read off the model in every step."""

    entropy_temperature: ClassVar[float | None] = None
    """Temperature of the next-token entropy that it looks at; None if it does not."""
    reads_head: ClassVar[bool] = True
    """Looks at log-probabilities or final states."""
    scored: ClassVar[bool] = True
    """Its weights are token scores, too: of `atwu.evaluation.weighting_scores`, made without hidden states."""

    def weights(self, seen: WeightingContext) -> Tensor:
        """Weights of the forget tokens, shape (batch, tokens); what lies off the mask does not count."""
        raise NotImplementedError


class FixedWeighting(Weighting):
    """A token weighting computed once, before training."""

    reads_head = False

    def weights(self, seen: WeightingContext) -> Tensor:
        raise ValueError("this weighting is computed once, before training; pass its values as token_weights.")

    def once(self, given: PrecomputeContext) -> Iterable[FloatArray]:
        """Weights of the counted tokens of each forget row, one array of shape (counted tokens,) a row."""
        raise NotImplementedError


class ForgetLoss(Component):
    """A forget loss."""

    reduction: ClassVar[Reduction] = "tokens"
    learns: ClassVar[Literal["forget", "alternate"]] = "forget"
    """Whose tokens the loss is about: the forget answers', or those of their alternates instead."""
    everywhere: ClassVar[bool] = False
    """Every position of a row is counted, from the prompt's first to the row's last, after which nothing is known."""
    reads_head: ClassVar[bool] = True
    """Looks at log-probabilities."""

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        """Loss per token, shape (batch, tokens), or per sequence, shape (batch,), where `reduction` is `sequences`."""
        raise NotImplementedError

    def wanted(self) -> dict[str, ReferenceSpec]:
        """What of the starting model it compares with in every step, by set of rows; follows from its needs."""
        logps, states = "reference_logps" in self.needs, "reference_distributions" in self.needs
        if not (logps or states):
            return {}
        from atwu.modeling.reference import ReferenceSpec

        found = {"forget": ReferenceSpec(logps=logps, states=states)}
        return found | {"alternate": ReferenceSpec(logps=True)} if logps and "alternates" in self.needs else found

    def target_token_ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Token ids that it teaches in place of the answer."""
        return ()

    def comparison(self, forget: TokenBatch, given: LossInputs) -> Comparison | None:
        """What is to be measured between distributions at every counted token, or None."""
        return None

    def distance(self, out: TokenOutputs) -> Tensor | None:
        """What was measured at each token, shape (batch, tokens)."""
        return out.distance

    def trained_layers(self, layers: int) -> tuple[int, ...] | None:
        """Decoder layers, of a model with that many, whose MLP output matrices alone it trains; None trains all weights."""
        return None


class PreserveLoss(Component):
    """A loss that keeps the tokens of a forget answer which the weighting spares; each counts with 1 minus its weight."""

    preserve_weight: float = number(
        1.0,
        symbol="δ",
        search=Range(0.1, 5.0),
        help="delta: factor on the preserve loss; larger keeps more of the answer around the key tokens",
    )

    def wanted(self) -> ReferenceSpec | None:
        """What it reads from the original model on forget rows, or None; follows from its needs."""
        if "reference_distributions" not in self.needs:
            return None
        from atwu.modeling.reference import ReferenceSpec

        return ReferenceSpec(states=True)

    def comparison(self, reference: Reference) -> Comparison | None:
        """Comparison of distributions to make at every answer token, or None."""
        return None

    def values(self, out: TokenOutputs) -> Tensor:
        """Loss per token before its weight, shape (batch, tokens)."""
        raise NotImplementedError


class RetainLoss(Component):
    """A retain loss."""

    needs: ClassVar[Sequence[str]] = ("retain",)
    reduction: ClassVar[Reduction] = "tokens"
    reads_head: ClassVar[bool] = True

    def wanted(self, layers: int) -> ReferenceSpec | None:
        """What of the starting model it compares with, for a model with that many decoder layers; follows from its needs."""
        states, layer = "reference_distributions" in self.needs, "reference_activations" in self.needs
        if not (states or layer):
            return None
        from atwu.modeling.reference import ReferenceSpec

        return ReferenceSpec(states=states, layer=self.reads_layer(layers) if layer else None)

    def comparison(self, reference: Reference) -> Comparison | None:
        """What is to be measured between distributions at every counted token, or None."""
        return None

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        """Loss per token, shape (batch, tokens)."""
        raise NotImplementedError
