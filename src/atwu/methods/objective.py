"""The unlearning loss of one micro-batch: one forward pass, a weighting, a forget loss and a retain loss.

The trainer and the public `unlearning_loss` both come through `recipe_loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.data.schema import IGNORE_INDEX
from atwu.methods.losses.reduction import reduced
from atwu.methods.recipe import Recipe, recipe
from atwu.methods.seen import Denominators, Given, LossTerms, TokensSeen
from atwu.methods.token_weights import token_weights
from atwu.methods.weightings.scorer import TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import LayoutChoice, TokenOutputs, forward_tokens
from atwu.modeling.layers import decoder_layers
from atwu.modeling.reference import Reference, live_reference
from atwu.modeling.single_pass import unwrap

Batch = Mapping[str, Tensor] | TokenBatch


@dataclass(frozen=True, slots=True)
class UnlearningLoss:
    """The loss of one micro-batch and what it was made of.

    Per-token tensors live on the shifted axis: shape (batch, length - 1), entry j is about token j + 1; shape
    (batch, length) where every position is counted (`legacy`).
    """

    loss: Tensor
    """`forget_weight * forget + retain_weight * retain`, a scalar with gradient."""
    forget: Tensor
    """Forget loss before its weight, a scalar."""
    retain: Tensor | None
    """Retain loss before its weight, or None if the method has none."""
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


def unlearning_loss(
    model: nn.Module,
    forget: Batch,
    retain: Batch | None = None,
    *,
    method: str,
    reference: nn.Module | None = None,
    scorer: TokenScorer | None = None,
    score_offset: Tensor | None = None,
    token_weights: Tensor | None = None,
    alternate: Batch | None = None,
    refusal_ids: Sequence[int] = (),
    weighting: str | Callable[..., Any] | None = None,
    forget_loss: str | Callable[..., Any] | None = None,
    retain_loss: str | None = None,
    configuration: str = "ours",
    layout: LayoutChoice = "auto",
    **options: Any,
) -> UnlearningLoss:
    """Compute any method's loss on one forget batch and one retain batch.

    Args:
        model: the causal language model being unlearned.
        forget: `input_ids`, `attention_mask`, `labels` of shape (batch, length), labels -100 where not counted; also
            `token_labels` (1 on secret tokens) for the label weighting.
        retain: the same for retain rows; required unless the method has no retain loss.
        method: a name listed by `atwu methods`.
        reference: starting model, for methods that compare with it; on the same device, not changed.
        scorer: for learned weights; None scores every token 1/2.
        score_offset: added to the logits of learned scores, for a scorer with a prior: its `offset` of each row, one after
            another, shape (counted tokens,).
        token_weights: weights to use instead of the method's own, in [0, 1], shape (batch, length), not shifted; required
            for weightings that are computed once before training (labels come from the batch).
        alternate: preferred answers to the forget prompts, for methods that learn from them.
        refusal_ids: tokens of the refusal that JensUn aims at.
        weighting: replace the method's token weighting, by name or by a function.
        forget_loss: replace its forget loss, by name or by a function.
        retain_loss: replace its retain loss.
        configuration: settings that are not given: ours, authors or paper.
        layout: see `forward_tokens`.
        options: `forget_weight`, `retain_weight`, `beta`, ...; unset ones take the method's published values.

    Raises:
        ValueError: unknown names, numbers the method does not take, missing inputs or shapes that do not match.
    """
    decided = recipe(
        method,
        weighting=weighting,
        forget_loss=forget_loss,
        retain_loss=retain_loss,
        configuration=configuration,
        **options,
    )
    rows = {"forget": TokenBatch.of(forget, name="forget")}
    if retain is not None and decided.retainer is not None:
        rows["retain"] = TokenBatch.of(retain, name="retain")
    if alternate is not None and "alternates" in decided.needs:
        rows["alternate"] = TokenBatch.of(alternate, name="alternate")
    rows |= {name: _everywhere(rows[name]) for name in decided.everywhere}
    if token_weights is not None and "forget" in decided.everywhere:
        token_weights = nn.functional.pad(token_weights, (0, 1), value=1.0)
    wanted = decided.wanted(len(decoder_layers(unwrap(model))) if decided.layered else 0)
    if wanted and reference is None:
        raise ValueError(f"method {decided.name!r} compares with the starting model; give it as reference.")
    seen = live_reference(reference, rows, wanted, layout=layout) if wanted and reference is not None else Reference()
    return recipe_loss(
        model,
        rows["forget"],
        rows.get("retain"),
        decided,
        alternate=rows.get("alternate"),
        scorer=scorer,
        given=Given(seen, token_weights=token_weights, score_offset=score_offset, refusal_ids=tuple(refusal_ids)),
        layout=layout,
    )


def recipe_loss(
    model: nn.Module,
    forget: Batch,
    retain: Batch | None,
    recipe: Recipe,
    *,
    alternate: Batch | None = None,
    scorer: TokenScorer | None = None,
    given: Given | None = None,
    denominators: Denominators | None = None,
    layout: LayoutChoice = "auto",
) -> UnlearningLoss:
    """`unlearning_loss` for a decided recipe; `denominators` are the counts of the whole batch this one is part of."""
    counts, given = denominators or Denominators(), given or Given(Reference())
    rows = _rows(recipe, forget, retain, alternate)
    loss, retainer = recipe.forgetter, recipe.retainer
    comparisons = {"forget": loss.comparison(rows["forget"], given)}
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
    weights, factor = token_weights(recipe, TokensSeen(out, rows["forget"], scorer, given.score_offset), given)
    values = loss.values(terms, weights)
    forget_term = reduced(
        values,
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
    return UnlearningLoss(total, forget_term, retain_term, weights, terms, factor, out)


def _rows(
    recipe: Recipe, forget: Batch, retain: Batch | None, alternate: Batch | None
) -> dict[str, TokenBatch]:  # fmt: skip
    """The batches that the forward pass runs over; under `forget` those whose tokens the forget loss is about."""
    rows = {"forget": TokenBatch.of(forget, name="forget")}
    if recipe.retainer is not None:
        if retain is None:
            raise ValueError(f"method {recipe.name!r} needs a retain batch; give one or set retain_loss='none'.")
        rows["retain"] = TokenBatch.of(retain, name="retain")
    if "alternates" in recipe.needs:
        if alternate is None:
            raise ValueError(f"method {recipe.name!r} needs alternate answers to the forget prompts.")
        rows["alternate"] = TokenBatch.of(alternate, name="alternate")
    if recipe.forgetter.learns == "alternate":
        rows["forget"] = rows.pop("alternate")
    return rows


def _terms(recipe: Recipe, out: TokenOutputs, alternate: TokenOutputs | None, given: Given) -> LossTerms:
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


def _everywhere(batch: TokenBatch) -> TokenBatch:
    """Every position counted, as in `atwu.training.rows`: the rows are one token longer."""
    ids, mask = (nn.functional.pad(part, (0, 1)) for part in (batch.input_ids, batch.attention_mask))
    width = mask.shape[1]
    last = width - 1 - mask.flip(1).int().argmax(dim=1)
    row = torch.arange(mask.shape[0], device=mask.device)
    ids[row, last + 1], mask[row, last + 1] = ids[row, last], True
    return TokenBatch(ids, mask, ids.masked_fill(~mask, IGNORE_INDEX))
