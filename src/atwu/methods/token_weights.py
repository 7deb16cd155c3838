"""The weight of every forget token in one micro-batch, from whatever the recipe's weighting looks at."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from atwu.methods.parts import WEIGHTINGS
from atwu.methods.recipe import Recipe
from atwu.methods.weightings.combine import mean_of_ranks, product
from atwu.methods.weightings.scorer import TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import TokenOutputs


@torch.no_grad()
def token_weights(
    recipe: Recipe,
    out: TokenOutputs,
    forget: TokenBatch,
    *,
    scorer: TokenScorer | None,
    instead: Tensor | None,
    fixed: Mapping[str, Tensor],
    score_offset: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Weigh the forget tokens.

    Args:
        recipe: names the weighting, or two and how they combine.
        out: what the forward pass gave for the forget rows.
        forget: the forget rows.
        scorer: for learned weights; None scores every token 1/2.
        instead: weights to use in place of the recipe's, (batch, length), not shifted.
        fixed: weights computed before training, by name, flat over the counted tokens.
        score_offset: added to the logit of learned scores, flat over the counted tokens.

    Returns:
        Weights of shape (batch, length - 1), 0 where not counted; and what learned ones were multiplied with, or None.

    Raises:
        ValueError: the weighting needs something that is not there, or a shape does not match.
    """
    if instead is not None:
        return _on_grid(instead, forget, out), None
    if recipe.weighting in fixed:
        return out.spread(fixed[recipe.weighting].to(out.logps)), None
    parts = [
        _one(recipe, name, out, forget, scorer=scorer, fixed=fixed, score_offset=score_offset)
        for name in recipe.weighting_names
    ]
    if len(parts) == 1:
        return parts[0], None
    first, second = parts
    weights = (mean_of_ranks if recipe.combination == "mean_of_ranks" else product)(first, second, out.mask)
    learned = [weighter.needs_scorer for weighter in recipe.weighters]
    return weights, parts[1 - learned.index(True)] if any(learned) else None


def _one(
    recipe: Recipe,
    name: str,
    out: TokenOutputs,
    forget: TokenBatch,
    *,
    scorer: TokenScorer | None,
    fixed: Mapping[str, Tensor],
    score_offset: Tensor | None,
) -> Tensor:
    weighter = WEIGHTINGS[name]
    if name in fixed:
        return out.spread(fixed[name].to(out.logps))
    if weighter.needs_labels:
        if forget.token_labels is None:
            raise ValueError(f"weighting {name!r} needs `token_labels` in the forget batch or `token_weights`.")
        return _on_grid(forget.token_labels, forget, out)
    if weighter.fixed is not None:
        raise ValueError(f"weighting {name!r} is computed once, before training; pass its values as token_weights.")
    if weighter.needs_scorer:
        if scorer is None:
            return 0.5 * out.mask.to(out.logps.dtype)
        return out.spread(scorer(out.hidden(scorer.hidden_position), score_offset).to(out.logps.dtype))
    assert weighter.of is not None
    if weighter.needs_entropy:
        assert out.entropy is not None
        return weighter.of(out.entropy, out.mask)
    return weighter.of(out.logps, **recipe.numbers(weighter.hyperparameters)) * out.mask


def _on_grid(weights: Tensor, forget: TokenBatch, out: TokenOutputs) -> Tensor:
    if weights.shape != forget.labels.shape:
        raise ValueError(
            f"token weights must have the labels' shape {tuple(forget.labels.shape)}, got {tuple(weights.shape)}."
        )
    return weights[:, 1:].to(out.logps) * out.mask
