"""The unlearning loss of one micro-batch: one forward pass, a weighting, a forget loss and a retain loss.

The trainer and the public `unlearning_loss` both come through `recipe_loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from atwu.losses.reduction import selected_mean, token_mean
from atwu.losses.retain import nll
from atwu.methods import Recipe, recipe
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import LayoutChoice, TokenOutputs, forward_tokens
from atwu.weighting.scorer import TokenScorer

Batch = Mapping[str, Tensor] | TokenBatch


@dataclass(frozen=True, slots=True)
class UnlearningLoss:
    """The loss of one micro-batch and what it was made of.

    Per-token tensors live on the shifted axis: shape (batch, length - 1), entry j is about token j + 1.
    """

    loss: Tensor
    """`forget_weight * forget + retain_weight * retain`, a scalar with gradient."""
    forget: Tensor
    """Forget loss before its weight, a scalar."""
    retain: Tensor | None
    """Retain loss before its weight, or None if the method has none."""
    token_weights: Tensor
    """Weight of each forget token, without gradient; 0 where it is not counted."""
    logps: Tensor
    """Log-probability of each forget token, with gradient; 0 where it is not counted."""
    mask: Tensor
    """True on counted forget tokens."""
    outputs: TokenOutputs
    """Everything the forward pass gave for the forget rows."""


@dataclass(frozen=True, slots=True)
class Denominators:
    """Counts to divide by when a micro-batch is part of a larger batch; None means this batch's own."""

    forget_tokens: float | None = None
    retain_tokens: float | None = None
    selected: float | None = None
    """Total weight, for losses that average over selected tokens."""


def unlearning_loss(
    model: nn.Module,
    forget: Batch,
    retain: Batch | None = None,
    *,
    method: str,
    reference: nn.Module | None = None,
    scorer: TokenScorer | None = None,
    token_weights: Tensor | None = None,
    alternate: Batch | None = None,
    weighting: str | None = None,
    forget_loss: str | None = None,
    retain_loss: str | None = None,
    detach_saturation: bool = True,
    layout: LayoutChoice = "auto",
    **hyperparameters: float | None,
) -> UnlearningLoss:
    """Compute any method's loss on one forget batch and one retain batch.

    Args:
        model: the causal language model being unlearned.
        forget: `input_ids`, `attention_mask`, `labels` of shape (batch, length), labels -100 where not counted; also
            `token_labels` (1 on secret tokens) for the label weighting.
        retain: the same for retain rows; required unless the method has no retain loss.
        method: a name listed by `atwu methods`.
        reference: starting model, for methods that compare with it.
        scorer: for learned weights; None scores every token 1/2.
        token_weights: weights to use instead of the method's own, in [0, 1], shape (batch, length), not shifted.
        alternate: preferred answers, for methods that learn from them.
        weighting: replace the method's token weighting.
        forget_loss: replace its forget loss.
        retain_loss: replace its retain loss.
        detach_saturation: treat the saturation factor as a constant.
        layout: see `forward_tokens`.
        hyperparameters: `forget_weight`, `retain_weight`, `beta`, ...; unset ones take the method's published values.

    Raises:
        ValueError: unknown names, numbers the method does not take, missing inputs or shapes that do not match.
    """
    decided = recipe(
        method,
        weighting=weighting,
        forget_loss=forget_loss,
        retain_loss=retain_loss,
        detach_saturation=detach_saturation,
        **hyperparameters,
    )
    return recipe_loss(model, forget, retain, decided, scorer=scorer, token_weights=token_weights, layout=layout)


def recipe_loss(
    model: nn.Module,
    forget: Batch,
    retain: Batch | None,
    recipe: Recipe,
    *,
    scorer: TokenScorer | None = None,
    token_weights: Tensor | None = None,
    denominators: Denominators | None = None,
    layout: LayoutChoice = "auto",
) -> UnlearningLoss:
    """`unlearning_loss` for a decided recipe; `denominators` are the counts of the whole batch this one is part of."""
    denominators = denominators or Denominators()
    forget = TokenBatch.of(forget, name="forget")
    batches = [forget]
    if recipe.needs_retain:
        if retain is None:
            raise ValueError(f"method {recipe.name!r} needs a retain batch; give one or set retain_loss='none'.")
        batches.append(TokenBatch.of(retain, name="retain"))
    temperature = recipe.values["temperature"] if recipe.weighter.needs_entropy and token_weights is None else None
    outputs = forward_tokens(model, batches, entropy_temperature=temperature, layout=layout)
    out = outputs[0]
    weights = _weights(recipe, out, forget, scorer=scorer, given=token_weights)
    values = recipe.forget_values(out.logps, weights)
    if recipe.forgetter.over_selected:
        forget_term = selected_mean(values, weights, out.mask, count=denominators.selected)
    else:
        forget_term = token_mean(values, out.mask, count=denominators.forget_tokens)
    loss, retain_term = recipe.values["forget_weight"] * forget_term, None
    if recipe.needs_retain:
        retain_term = token_mean(nll(outputs[1].logps), outputs[1].mask, count=denominators.retain_tokens)
        loss = loss + recipe.values["retain_weight"] * retain_term
    return UnlearningLoss(loss, forget_term, retain_term, weights, out.logps, out.mask, out)


@torch.no_grad()
def _weights(
    recipe: Recipe, out: TokenOutputs, forget: TokenBatch, *, scorer: TokenScorer | None, given: Tensor | None
) -> Tensor:
    """Token weights of shape (batch, length - 1), zero where not counted."""
    weighter = recipe.weighter
    if given is None and weighter.needs_labels:
        given = forget.token_labels
        if given is None:
            raise ValueError(
                f"weighting {recipe.weighting!r} needs `token_labels` in the forget batch or `token_weights`."
            )
    if given is not None:
        if given.shape != forget.labels.shape:
            raise ValueError(
                f"token weights must have the labels' shape {tuple(forget.labels.shape)}, got {tuple(given.shape)}."
            )
        return given[:, 1:].to(out.logps) * out.mask
    if weighter.needs_scorer:
        if scorer is None:
            return 0.5 * out.mask.to(out.logps.dtype)
        return out.spread(scorer(out.hidden(scorer.hidden_position)).to(out.logps.dtype))
    assert weighter.of is not None
    if weighter.needs_entropy:
        assert out.entropy is not None
        return weighter.of(out.entropy, out.mask)
    options = {name: recipe.values[name] for name in weighter.hyperparameters}
    return weighter.of(out.logps, **options) * out.mask
