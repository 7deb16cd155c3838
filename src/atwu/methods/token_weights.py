"""The weight of every forget token in one micro-batch, from whatever the recipe's weighting looks at."""

from __future__ import annotations

import torch
from torch import Tensor

from atwu.methods.recipe import Recipe
from atwu.methods.seen import Given, TokensSeen
from atwu.methods.weightings.combine import combined
from atwu.methods.weightings.learned import LearnedScores


@torch.no_grad()
def token_weights(recipe: Recipe, seen: TokensSeen, given: Given) -> tuple[Tensor, Tensor | None]:
    """Weigh the forget tokens.

    Args:
        recipe: names the weighting, or two and how they combine.
        seen: the forget rows, and what the forward pass gave for them.
        given: weights computed before training, or weights to use in place of the recipe's.

    Returns:
        Weights of shape (batch, length - 1), 0 where not counted; and what learned ones were multiplied with, or None.

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
