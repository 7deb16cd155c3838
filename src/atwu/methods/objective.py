"""The loss of one micro-batch under a method: one forward pass, a weighting, a forget loss and a retain loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.methods.component_inputs import LossInputs, LossTerms, NormalizationCounts, WeightingContext
from atwu.methods.losses.reduction import reduced, token_mean
from atwu.methods.recipe import Recipe
from atwu.methods.weightings.combine import combined
from atwu.methods.weightings.learned import LearnedScores
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import LayoutChoice, TokenOutputs, forward_tokens
from atwu.modeling.layers import decoder_layers
from atwu.modeling.reference import Reference
from atwu.modeling.single_pass import unwrap


@dataclass(frozen=True, slots=True)
class UnlearningLoss:
    """The loss of one micro-batch and what it was made of.

    Per-token tensors live on the shifted axis: shape (batch, length - 1), entry j is about token j + 1; shape
    (batch, length) where every position is counted (`legacy`).
    """

    loss: Tensor
    """`forget_weight * forget + retain_weight * retain + preserve_weight * preserve`, a scalar with gradient."""
    forget: Tensor
    """Forget loss before its weight, a scalar."""
    retain: Tensor | None
    """Retain loss before its weight, or None if the method has none."""
    preserve: Tensor | None
    """Preserve loss before its weight, or None without one."""
    token_weights: Tensor
    """Weight of each forget token, without gradient; 0 where it is not counted."""
    terms: LossTerms
    """What the forget loss was computed from."""
    factor: Tensor | None
    """What learned scores were multiplied with, or None."""
    outputs: TokenOutputs
    """Everything the forward pass gave for the forget rows."""

    @property
    def logps(self) -> Tensor:
        """Log-probability of each forget token, with gradient; 0 where it is not counted."""
        return self.terms.logps

    @property
    def mask(self) -> Tensor:
        """True on counted forget tokens."""
        return self.terms.mask


def recipe_loss(
    model: nn.Module,
    batches: Mapping[str, Any],
    recipe: Recipe,
    *,
    scorer: TokenScorer | None = None,
    given: LossInputs | None = None,
    denominators: NormalizationCounts | None = None,
    layout: LayoutChoice = "auto",
) -> UnlearningLoss:
    """Compute the loss of one micro-batch.

    Args:
        model: the causal language model being unlearned.
        batches: token batches by name, `forget`, `retain` and `alternate`, as far as the recipe looks at them.
        recipe: the method, decided.
        scorer: for learned weights; None scores every token 1/2.
        given: what it needs besides the rows.
        denominators: counts of the whole batch this one is part of; by default its own.
        layout: see `forward_tokens`.

    Raises:
        ValueError: a batch or something else that the recipe needs is missing.
    """
    counts, given = denominators or NormalizationCounts(), given or LossInputs(Reference())
    rows = batches_of(recipe, batches)
    loss, retainer = recipe.forgetter, recipe.retainer
    if loss.learns == "alternate":
        rows["forget"] = rows.pop("alternate")
    comparisons = {"forget": loss.comparison(rows["forget"], given)}
    preserver = recipe.preserver
    if preserver is not None and comparisons["forget"] is None:
        comparisons["forget"] = preserver.comparison(given.reference)
    if retainer is not None:
        comparisons["retain"] = retainer.comparison(given.reference)
    outputs = forward_tokens(
        model,
        list(rows.values()),
        entropy_temperature=recipe.entropy_temperature if given.token_weights is None else None,
        comparisons=[comparisons.get(name) for name in rows],
        layer=recipe.layer(len(decoder_layers(unwrap(model)))) if recipe.layered else None,
        stop=not recipe.reads_head,
        layout=layout,
    )
    outs = dict(zip(rows, outputs, strict=True))
    out = outs["forget"]
    terms = _terms(recipe, out, outs.get("alternate"), given)
    weights, factor = _weights(recipe, WeightingContext(out, rows["forget"], scorer, given.score_offset), given)
    forget_term = reduced(
        loss.values(terms, weights),
        weights,
        out.mask,
        loss.reduction,
        tokens=counts.forget_tokens,
        rows=counts.forget_rows,
        selected=counts.selected,
    )
    total, retain_term = recipe.factors.forget_weight * forget_term, None
    if retainer is not None:
        kept = outs["retain"]
        retain_term = reduced(
            retainer.values(kept, given.reference),
            kept.mask,
            kept.mask,
            retainer.reduction,
            tokens=counts.retain_tokens,
            rows=counts.retain_rows,
        )
        total = total + recipe.factors.retain_weight * retain_term
    preserve_term = None
    if preserver is not None:
        spared = (1 - weights).clamp(0, 1)
        preserve_term = token_mean(spared * preserver.values(out), out.mask, count=counts.forget_tokens)
        total = total + preserver.preserve_weight * preserve_term
    return UnlearningLoss(total, forget_term, retain_term, preserve_term, weights, terms, factor, out)


def batches_of(recipe: Recipe, given: Mapping[str, Any]) -> dict[str, TokenBatch]:
    """The batches that a recipe looks at, by name.

    Raises:
        ValueError: one is missing or malformed.
    """
    looked_at = {"forget": "forget rows"}
    if recipe.retainer is not None:
        looked_at["retain"] = "a retain batch; give one or set retain_loss='none'"
    if "alternates" in recipe.needs:
        looked_at["alternate"] = "alternate answers to the forget prompts"
    for name, what in looked_at.items():
        if given.get(name) is None:
            raise ValueError(f"method {recipe.name!r} needs {what}.")
    return {name: TokenBatch.of(given[name], name=name) for name in looked_at}


def _terms(recipe: Recipe, out: TokenOutputs, alternate: TokenOutputs | None, given: LossInputs) -> LossTerms:
    loss, reference = recipe.forgetter, given.reference
    ref_logps = preferred = None
    compared = loss.wanted().get("forget")
    if compared is not None and compared.logps:
        if reference.forget_logps is None:
            raise ValueError(f"method {recipe.name!r} compares with the starting model; give its reference.")
        ref_logps = out.spread(reference.forget_logps.to(out.logps))
    if alternate is not None:
        assert reference.alternate_logps is not None
        ratio = alternate.logps - alternate.spread(reference.alternate_logps.to(alternate.logps))
        preferred = ratio.sum(dim=1)
    return LossTerms(out.logps, out.mask, ref_logps, preferred, loss.distance(out), learned=recipe.scores is not None)


@torch.no_grad()
def _weights(recipe: Recipe, seen: WeightingContext, given: LossInputs) -> tuple[Tensor, Tensor | None]:
    """Weight of every forget token, (batch, length - 1), 0 where not counted; and what learned ones were multiplied with.

    Raises:
        ValueError: the weighting needs something that is not there, or a shape does not match.
    """
    out, fixed = seen.out, given.fixed_weights
    if given.token_weights is not None:
        shape = seen.forget.labels.shape
        if given.token_weights.shape != shape:
            raise ValueError(
                f"token weights must have the labels' shape {tuple(shape)}, got {tuple(given.token_weights.shape)}."
            )
        return given.token_weights[:, 1:].to(out.logps) * out.mask, None
    if recipe.weighting in fixed:
        return out.spread(fixed[recipe.weighting].to(out.logps)), None
    parts = [
        out.spread(fixed[name].to(out.logps)) if name in fixed else weighter.weights(seen) * out.mask
        for name, weighter in zip(recipe.weighting_names, recipe.weighters, strict=True)
    ]
    if recipe.combination is None:
        return parts[0], None
    learned = [isinstance(weighter, LearnedScores) for weighter in recipe.weighters]
    factor = parts[1 - learned.index(True)] if any(learned) else None
    return combined(parts[0], parts[1], out.mask, how=recipe.combination), factor
