"""The parts that methods are made of: token weightings, forget losses and retain losses.

Each part is one pure function and one table entry that says what the function needs. `atwu.register_weighting`,
`register_forget_loss` and `register_method` add entries from outside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from atwu.methods.hyperparameters import HYPERPARAMETERS as HYPERPARAMETERS
from atwu.methods.losses import divergence, likelihood, preference
from atwu.methods.weightings import fixed, probability

if TYPE_CHECKING:
    from atwu.methods.weightings.fixed import FixedWeights
    from atwu.modeling.compare import Distance

Reduction = Literal["tokens", "selected", "sequences", "row_means"]
"""Mean over tokens; over the total weight; over sequences; or over sequences of each one's mean over tokens."""


@dataclass(frozen=True, slots=True)
class LossTerms:
    """What a forget loss may look at; tensors of shape (batch, tokens), 0 where `mask` is False."""

    logps: Tensor
    """log p(x_t | x_<t) under the current model."""
    mask: Tensor
    """True on counted tokens."""
    ref_logps: Tensor | None = None
    """The same log-probabilities under the starting model."""
    preferred: Tensor | None = None
    """Log ratio of the preferred answer between current and starting model, shape (batch,)."""
    distance: Tensor | None = None
    """What the loss's own distance measured at each token."""

    def constant(self) -> LossTerms:
        """The same without gradient."""
        return LossTerms(*(getattr(self, name) if getattr(self, name) is None else getattr(self, name).detach()
                           for name in self.__slots__))  # fmt: skip


@dataclass(frozen=True, slots=True)
class ForgetLoss:
    """A forget loss: values of (terms, weights), and how they are averaged."""

    summary: str
    of: Callable[..., Tensor] | None = None
    """of(terms, weights, **hyperparameters): per token, or per sequence where `reduction` is "sequences"; None for
    `weights * terms.distance`."""
    hyperparameters: tuple[str, ...] = ()
    reduction: Reduction = "tokens"
    saturates: bool = False
    """Takes `detach_saturation`."""
    needs_ref_logps: bool = False
    needs_alternate: bool = False
    on_alternate: bool = False
    """The forget answers are not looked at, only their alternates."""
    distance: Callable[..., Distance] | None = None
    """distance(**hyperparameters): the distance between distributions that fills `terms.distance`."""
    needs_teacher: bool = False
    """The distance compares with the starting model's distribution."""
    ids: Literal["none", "own", "refusal"] = "none"
    """Token ids that the distance refers to: the counted token's own, or those of a refusal in turn."""
    steers: bool = False
    """`terms.distance` is that of a layer's output to the steering vector; only that layer's MLP outputs are trained."""


@dataclass(frozen=True, slots=True)
class RetainLoss:
    """A retain loss, averaged over counted tokens."""

    summary: str
    distance: Distance | None = None
    """None for the negative log-likelihood."""
    layer: bool = False
    """Squared distance of a layer's output to the starting model's, averaged per row."""

    @property
    def needs_teacher(self) -> bool:
        return self.distance is not None


@dataclass(frozen=True, slots=True)
class Weighting:
    """A token weighting."""

    summary: str
    of: Callable[..., Tensor] | None = None
    """of(logps, **hyperparameters), or of(entropy, mask) with `needs_entropy`: weights of shape (batch, tokens)."""
    fixed: Callable[[FixedWeights], list[fixed.FloatArray]] | None = None
    """Weights computed once, before training: one array of shape (counted tokens,) per forget row."""
    hyperparameters: tuple[str, ...] = ()
    needs_entropy: bool = False
    needs_labels: bool = False
    needs_scorer: bool = False
    needs_ref_logps: bool = False
    needs_retain: bool = False
    needs_answers: bool = False
    """Reads the text of the answers."""
    needs_auxiliary: bool = False
    """Compares two auxiliary models."""


def _distilled(beta: float) -> Distance:
    return functools.partial(divergence.self_distillation, beta=beta)


FORGET_LOSSES: dict[str, ForgetLoss] = {
    "ga": ForgetLoss("w log p", lambda t, w: likelihood.gradient_ascent(t.logps, w)),
    "masked_ga": ForgetLoss(
        "w log p, mean over selected tokens", lambda t, w: likelihood.gradient_ascent(t.logps, w), reduction="selected"
    ),
    "satga": ForgetLoss(
        "w p^β log p", lambda t, w, **n: likelihood.saturated_ascent(t.logps, w, **n), ("beta",), saturates=True
    ),
    "satga_plus": ForgetLoss(
        "w p^(β w) log p", lambda t, w, **n: likelihood.modulated_ascent(t.logps, w, **n), ("beta",), saturates=True
    ),
    "refusal": ForgetLoss(
        "-w log p of the alternate answer", lambda t, w: -w * t.logps, needs_alternate=True, on_alternate=True
    ),
    "npo": ForgetLoss(
        "-(2/β) log σ(-β r), r = log π(y)/π0(y)",
        lambda t, w, **n: preference.npo(t.logps, t.ref_logps, t.mask, w, **n),
        ("beta",),
        "sequences",
        needs_ref_logps=True,
    ),
    "dpo": ForgetLoss(
        "-(2/β) log σ(β (r(alternate) - r))",
        lambda t, w, **n: preference.dpo(t.logps, t.ref_logps, t.mask, w, t.preferred, **n),
        ("beta",),
        "sequences",
        needs_ref_logps=True,
        needs_alternate=True,
    ),
    "simnpo": ForgetLoss(
        "-(2/β) log σ(β (mean of -w log p - δ))",
        lambda t, w, **n: preference.simnpo(t.logps, t.mask, w, **n),
        ("beta", "delta", "score_scale"),
        "sequences",
    ),
    "js_refusal": ForgetLoss(
        "w JS(π, the refusal's tokens in turn)",
        distance=lambda: lambda logps, ref, ids: divergence.js_to_tokens(logps, ids),
        ids="refusal",
    ),
    "self_distillation": ForgetLoss(
        "w CE(softmax(z0 - β on the token), π)", None, ("beta",), distance=_distilled, needs_teacher=True, ids="own"
    ),
    "masked_self_distillation": ForgetLoss(
        "w CE(softmax(z0 - β on the token), π), mean over selected tokens",
        None,
        ("beta",),
        "selected",
        distance=_distilled,
        needs_teacher=True,
        ids="own",
    ),
    "steering": ForgetLoss(
        "w |h - c u/|u||² / d at one layer", None, ("steering_coeff", "layer"), "row_means", steers=True
    ),
}

RETAIN_LOSSES: dict[str, RetainLoss | None] = {
    "nll": RetainLoss("-log p of retain answers"),
    "kl": RetainLoss("KL(starting model ‖ model) on retain answers", lambda logps, ref, ids: divergence.kl(logps, ref)),
    "js": RetainLoss(
        "JS(starting model, model) on retain answers", lambda logps, ref, ids: divergence.jensen_shannon(logps, ref)
    ),
    "activation": RetainLoss("|h - h0|² / d at one layer on retain answers", layer=True),
    "none": None,
}

WEIGHTINGS: dict[str, Weighting] = {
    "uniform": Weighting("1", probability.uniform),
    "saturation": Weighting("p^β", probability.saturation, hyperparameters=("beta",)),
    "importance": Weighting("(1 - p)^β2", probability.importance, hyperparameters=("beta2",)),
    "satimp": Weighting("p^β1 (1 - p)^β2", probability.satimp, hyperparameters=("beta1", "beta2")),
    "entropy": Weighting(
        "n H / Σ H, at temperature τ", probability.entropy_share, hyperparameters=("temperature",), needs_entropy=True
    ),
    "logprob_mask": Weighting(
        "1 where the starting model's log p is below the row's mean, gaps filled",
        fixed=fixed.logprob_mask,
        needs_ref_logps=True,
    ),
    "model_difference": Weighting(
        "1 where two auxiliary models disagree more than on average, widened to the left",
        fixed=fixed.model_difference,
        needs_retain=True,
        needs_auxiliary=True,
    ),
    "ngram_difference": Weighting(
        "1 where forget and retain n-grams disagree more than on average, widened to the left",
        fixed=fixed.ngram_difference,
        needs_retain=True,
    ),
    "nouns": Weighting("1 on noun phrases", fixed=fixed.nouns, needs_answers=True),
    "rarity": Weighting(
        "rank in the answer of -log(count among retain answers), lower for words of the prompt",
        fixed=fixed.rarity,
        needs_retain=True,
    ),
    "labels": Weighting("1 on annotated secret tokens", fixed=fixed.labels, needs_labels=True),
    "scorer": Weighting("learned: σ(<w, h> + b)", needs_scorer=True),
}
