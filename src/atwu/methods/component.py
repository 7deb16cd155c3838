"""Base classes of the components of a method: token weighting, forget loss and retain loss.

A component is a subclass that declares its hyperparameters and settings as fields, such as
`beta: float = number(1.0, search=Range(0.1, 5.0), help="...")`; it becomes a frozen dataclass automatically. Configuration,
command line, hyperparameter search, `atwu methods` and model card all read these fields. Importing this module does not
import torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform

from atwu._names import lookup
from atwu._options import Option, options_of
from atwu.methods.component_inputs import Reduction

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.data.alternates import Alternates
    from atwu.data.arrays import FloatArray
    from atwu.methods.component_inputs import (
        AnswerRows,
        LossInputs,
        LossTerms,
        PrecomputeContext,
        WeightingContext,
    )
    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.distribution_distance import Comparison
    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference, ReferenceSpec


@dataclass(frozen=True, slots=True)
class Range:
    """Search range of a number."""

    low: float
    high: float
    log: bool = True
    """Whether the search is uniform in the logarithm."""
    integer: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            kind = "range needs low <= high"
            if self.log:
                kind = "logarithmic range needs 0 < low <= high"
            raise ValueError(f"a {kind}, got {self.low} to {self.high}.")

    def at(self, share: float) -> float:
        """Map a share in [0, 1] to a number of the range; in integer ranges every integer gets an equal share."""
        low, high = self.low, self.high
        if self.integer:
            # Half a step beyond both ends, so that rounding gives the first and the last one their whole share.
            low, high = low - 0.5, high + 0.5
        if self.log:
            return self.clip(low * (high / low) ** share)
        return self.clip(low + (high - low) * share)

    def clip(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        if self.integer:
            return round(inside)
        return float(inside)


@dataclass(frozen=True)
class ComponentOption(Option):
    """One option of a component, as used by configuration, command line, search, `atwu methods` and model card."""

    symbol: str = ""
    search: Range | None = None
    number: bool = False
    """True for a hyperparameter of the formula, False for a setting of the procedure."""
    strict: bool = False
    """Whether setting it is an error if no component of the method uses it; other settings are then ignored."""
    learned: bool = False


def number(
    default: float,
    *,
    help: str,
    symbol: str = "",
    search: Range | None = None,
    positive: bool = False,
    learned: bool = False,
) -> Any:
    """Declare a hyperparameter of a component's formula: a finite number >= 0, whole in a field of type int.

    Args:
        default: value unless the method or the user sets another.
        help: its effect, in one sentence.
        positive: whether 0 is rejected.
        learned: whether it only has an effect with learned weights.
    """
    facts = {"help": help, "symbol": symbol, "search": search, "learned": learned, "number": True, "strict": True}
    bound = {"least": 0}
    if positive:
        bound = {"above": 0}
    return dataclasses.field(default=default, metadata=facts | bound)


def setting(
    default: Any,
    *,
    help: str,
    choices: Sequence[str] = (),
    search: Range | None = None,
    least: float | None = None,
    strict: bool = False,
) -> Any:
    """Declare a setting of a component's procedure; methods that do not use it ignore it.

    Args:
        default: value unless the configuration or the user sets another.
        help: what it controls, in one sentence.
        least: smallest allowed number.
        strict: raise an error, instead of ignoring it, if no component of the method uses it.
    """
    facts = {"help": help, "choices": tuple(choices), "search": search, "least": least, "strict": strict}
    return dataclasses.field(default=default, metadata=facts)


def options_of_component(component: Any) -> tuple[ComponentOption, ...]:
    """Return the options of a component (class or instance) in the order of declaration."""
    return options_of(component if isinstance(component, type) else type(component), ComponentOption)


RowsName = Literal["forget", "retain"]

ORIGINAL_OUTPUTS = {
    "logps": "log-probabilities",
    "distributions": "next-token distributions",
    "layer": "outputs of one layer",
}
"""What a loss may read of the original model, with a name for people."""


@dataclass_transform(frozen_default=True, field_specifiers=(number, setting))
class Component:
    """Base class of all components of a method."""

    formula: ClassVar[str] = ""
    """Formula in one line, with the symbols of the hyperparameters."""
    reads_head: ClassVar[bool] = False
    """Whether it uses log-probabilities or final hidden states of the model."""
    reads_retain: ClassVar[bool] = False
    """Whether it uses retain rows."""
    reads_labels: ClassVar[bool] = False
    """Whether it uses labels of the key tokens, which every forget row must then have."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True)(cls)  # in place; frozen, since recipes are compared and stored

    def check(self) -> None:
        """Raise an error before anything is loaded if the component cannot work in this environment."""

    def reads_layer(self, layers: int) -> int | None:
        """Return the index of the decoder layer whose output this component reads, or None."""
        return None

    def needs(self) -> list[str]:
        """Say in words what it needs besides forget rows, for `atwu methods`; a subclass adds to the list."""
        words = []
        if self.reads_retain:
            words.append("retain rows (--retain)")
        if self.reads_labels:
            words.append("labelled tokens: forget_spans in the forget rows, or --forget-words")
        return words


class TermWeights(Component):
    """Factors on the forget and retain terms of the loss."""

    forget_weight: float = number(
        1.0, symbol="γ", search=Range(0.1, 5.0), help="gamma: weight of the forget loss; larger forgets more"
    )
    retain_weight: float = number(
        1.0, symbol="α", search=Range(0.1, 5.0), help="alpha: weight of the retain loss; larger retains more"
    )


class Weighting(Component):
    """Base class of token weightings that are computed from the model in every step."""

    entropy_temperature: ClassVar[float | None] = None
    """Temperature of the next-token entropy that the weighting uses; None if it uses none."""
    reads_head = True
    is_score: ClassVar[bool] = True
    """Whether `atwu.evaluation.weighting_scores` can evaluate its weights as token scores; needs no hidden states."""

    def weights(self, context: WeightingContext) -> Tensor:
        """Compute the weights of the forget tokens, shape (batch, tokens); values outside the mask are ignored."""
        raise NotImplementedError


class FixedWeighting(Weighting):
    """Base class of token weightings that are computed once, before training."""

    reads_head = False
    reads_original: ClassVar[bool] = False
    """Whether `precompute` reads rows with the original model, or another one."""
    auxiliary: ClassVar[Mapping[str, RowsName]] = {}
    """Options that name a further model, with the rows that it is fine-tuned on where none is given."""

    def needs(self) -> list[str]:
        words = super().needs()
        if self.auxiliary:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in self.auxiliary)
            words.append(f"{len(self.auxiliary)} auxiliary models ({flags}), otherwise trained and cached")
        elif self.reads_original:
            words.append("log-probabilities of the original model, computed before training")
        return words

    def weights(self, context: WeightingContext) -> Tensor:
        # Only `unlearning_loss` comes here: a run has the weights in a table.
        raise ValueError("this weighting is computed once, before training; pass precomputed values as token_weights.")

    def precompute(self, context: PrecomputeContext) -> Iterable[FloatArray]:
        """Compute the weights of each forget row: one array of shape (counted tokens,) per row."""
        raise NotImplementedError


class Loss(Component):
    """Base class of forget, retain, preserve and replacement losses."""

    reduction: ClassVar[Reduction] = "tokens"
    reads_head = True
    of_logits: ClassVar[bool] = False
    """Whether `from_distributions` takes logits instead of log-probabilities."""

    original: ClassVar[Collection[str]] = ()
    """Outputs of the original model that every step reads: keys of `ORIGINAL_OUTPUTS`."""
    reads_alternates: ClassVar[bool] = False
    """Whether it reads other answers to the questions of its rows, in the batch `alternate` (`retain_alternate`)."""
    from_column: ClassVar[bool] = False
    """Whether these are the column `alternate`, or a refusal where a row has none: answers to the question as written."""
    own_alternates: ClassVar[bool] = False
    """Whether every row must have the column."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A typing error would otherwise give a loss that silently gets no reference.
        for output in cls.original:
            lookup("output of the original model", output, ORIGINAL_OUTPUTS)

    def needs(self) -> list[str]:
        words = super().needs()
        for output, name in ORIGINAL_OUTPUTS.items():
            if output in self.original:
                words.append(f"{name} of the original model (--reference)")
        if self.own_alternates:
            words.append("column alternate in every forget row")
        elif self.from_column:
            words.append(
                "alternate answers: column alternate of the rows, otherwise refusals drawn anew in every epoch"
            )
        return words

    def other_answers(self, rows: AnswerRows) -> Alternates | None:
        """Return the other answers of a run, if it `reads_alternates`; None for those that training samples."""
        return rows.alternates(own=self.own_alternates)

    def reference_specs(self, rows: RowsName, layers: int) -> dict[str, ReferenceSpec]:
        """Return which quantities of the original model each step needs, by set of rows; derived from `original`."""
        if not self.original:
            return {}
        # It imports torch, which a listing of methods does not need.
        from atwu.modeling.reference import ReferenceSpec

        logps, states = "logps" in self.original, "distributions" in self.original
        layer = None
        if "layer" in self.original:
            layer = self.reads_layer(layers)
        specs: dict[str, ReferenceSpec] = {rows: ReferenceSpec(logps=logps, states=states, layer=layer)}
        if logps and self.reads_alternates:  # a preference between two answers has a log ratio of each
            specs["alternate"] = ReferenceSpec(logps=True)
        return specs

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        """Compute the `distance` of a loss of whole next-token distributions; called with one block of tokens at a time.

        Args:
            logps: log-probabilities under the current model, shape (tokens, vocabulary).
            ref_logps: those under the original model, if `original` has distributions, else None.
            ids: `compared_ids` of these tokens, shape (tokens, k).

        Returns:
            Shape (tokens,).
        """
        raise NotImplementedError

    def slope(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        """Compute the squared norm of the gradient of `from_distributions` in the logits, for balanced losses."""
        raise NotImplementedError

    def compared_ids(self, batch: TokenBatch, inputs: LossInputs) -> Tensor:
        """Return the token ids, or places, that `from_distributions` needs, shape (counted tokens, k); by default the answer's
        own ids."""
        return batch.labels[:, 1:][batch.mask][:, None]

    def comparison(self, rows: RowsName, batch: TokenBatch, inputs: LossInputs) -> Comparison | None:
        """Return how `from_distributions` is computed on a batch; None if the loss has none."""
        # A loss compares distributions if it says how: a flag beside the method could contradict it.
        if type(self).from_distributions is Loss.from_distributions:
            return None
        from atwu.modeling.distribution_distance import Comparison

        teacher = slope = None
        if "distributions" in self.original:
            teacher = inputs.reference.teacher(rows)
        if type(self).slope is not Loss.slope:  # only balanced losses read it, and it costs a pass over the vocabulary
            slope = self.slope
        ids = self.compared_ids(batch, inputs)
        return Comparison(self.from_distributions, teacher, ids, slope=slope, of_logits=self.of_logits)


class ForgetLoss(Loss):
    """Base class of forget losses."""

    trained_answer: ClassVar[Literal["forget", "alternate"]] = "forget"
    """Whether the loss uses the tokens of the forget answers or those of the alternate answers."""
    balanced: ClassVar[bool] = False
    """Whether its term is scaled so that its gradient in the logits has the norm of the retain term's."""
    all_positions: ClassVar[bool] = False
    """Whether the loss counts every position of a row, prompt and last token included."""

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        """Compute the loss per token, shape (batch, tokens), or per sequence, shape (batch,), if `reduction` is `sequences`."""
        raise NotImplementedError

    def averaged(self, mask: Tensor) -> Tensor:
        """Return the tokens of the loss mask that a mean over tokens is taken of, same shape; by default all."""
        return mask

    def needs(self) -> list[str]:
        words = super().needs()
        if self.teacher_prompts():
            words.append("forget questions behind prompts that only the original model reads")
        if self.sampled_readings():
            words.append(
                "answers of the model itself to the forget questions, sampled before training or in every epoch"
            )
        if self.refused_questions():
            words.append("questions that the model refuses (a list of our own) and its states at their ends")
        return words

    def target_token_ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Return the token ids that the model learns in place of the answer."""
        return ()

    def teacher_prompts(self) -> dict[str, str]:
        """Return texts before the question that only the original model reads, by name of the rows behind them."""
        return {}

    def sampled_readings(self) -> dict[str, float]:
        """Return factors by name of rows, if its other answers are sampled from the model.

        They are drawn from the sum of factor times log-probability: once, before training, from several rows, anew in every
        epoch from one.
        """
        return {}

    def refused_questions(self) -> Sequence[str]:
        """Return questions that a model refuses, if it reads the direction from the forget questions towards them."""
        return ()

    def distance(self, out: TokenOutputs, inputs: LossInputs) -> Tensor | None:
        """Return the distance at each token, shape (batch, tokens)."""
        return out.distance

    def trained_layers(self, layers: int) -> tuple[int, ...] | None:
        """Return the decoder layers whose MLP output matrices are trained; None trains all weights."""
        return None


class PreserveLoss(Loss):
    """Base class of losses that keep the tokens of a forget answer which the weighting spares.

    A token-weighted forget loss spares a token of weight 0, but nothing holds that token in place: ascent on its neighbours
    moves it as well. A preserve loss gives each forget token the complement of its weight,

        δ · Σ_t (1 - w_t / max_s w_s) · ℓ_t / T,

    with ℓ_t the value at token t. The maximum is taken within the answer, so that the token with the largest weight is free
    to change; the sum and T, the number of tokens, are of all forget answers of the optimizer step (`micro_batch_loss`).
    """

    preserve_weight: float = number(
        1.0,
        symbol="δ",
        search=Range(0.1, 5.0),
        help="delta: factor on the preserve loss; larger keeps more of the answer around the key tokens",
    )

    def values(self, out: TokenOutputs) -> Tensor:
        """Compute ℓ_t of each token, shape (batch, tokens)."""
        raise NotImplementedError


class RetainLoss(Loss):
    """Base class of retain losses."""

    reads_retain = True
    changes_weight: ClassVar[bool] = False
    """Whether its weight changes during a run."""

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        """Compute the loss per token, shape (batch, tokens), or per sequence, shape (batch,), if `reduction` is `sequences`."""
        raise NotImplementedError

    def values_against(self, out: TokenOutputs, alternate: TokenOutputs) -> Tensor:
        """Compute the same from answers and alternate answers, for a loss that `reads_alternates`."""
        raise NotImplementedError

    def next_weight(self, weight: float, *, retain: float, epoch: float) -> float:
        """Return the weight after an optimizer step with this retain loss, for one that `changes_weight`."""
        raise NotImplementedError
