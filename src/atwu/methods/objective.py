"""The unlearning loss of one micro-batch: one forward pass, a weighting, a forget loss and a retain loss.

The trainer and the public `unlearning_loss` both come through `recipe_loss`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from atwu.data.schema import IGNORE_INDEX
from atwu.methods.losses.reduction import mean_of_means, selected_mean, sequence_mean, token_mean
from atwu.methods.losses.representation import squared_distance, steering_vector
from atwu.methods.losses.retain import nll
from atwu.methods.parts import LossTerms, Reduction
from atwu.methods.recipe import Recipe, recipe
from atwu.methods.token_weights import token_weights
from atwu.methods.weightings.scorer import TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.compare import Comparison, Teacher
from atwu.modeling.forward import LayoutChoice, TokenOutputs, forward_tokens
from atwu.modeling.reference import Reference, Wanted, live_reference
from atwu.modeling.single_pass import unwrap
from atwu.modeling.tap import decoder_layers

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


@dataclass(frozen=True, slots=True)
class Denominators:
    """Counts to divide by when a micro-batch is part of a larger batch; None means this batch's own."""

    forget_tokens: float | None = None
    retain_tokens: float | None = None
    forget_rows: float | None = None
    retain_rows: float | None = None
    selected: float | None = None
    """Total weight, for losses that average over selected tokens."""
    labelled_rows: float | None = None
    """Rows with secret and other tokens, for the agreement that is logged."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a loss may need besides the rows; per-token tensors are flat, in row-major order of the forget mask."""

    reference: Reference = field(default_factory=Reference)
    fixed_weights: Mapping[str, Tensor] = field(default_factory=dict)
    """Weights computed before training, by name of the weighting, (tokens,)."""
    token_weights: Tensor | None = None
    """Weights to use instead of the method's own, (batch, length), not shifted."""
    score_offset: Tensor | None = None
    """Added to the logit of learned scores, (tokens,)."""
    refusal_ids: tuple[int, ...] = ()
    """Tokens of the refusal that JensUn aims at."""


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
    weighting: str | None = None,
    forget_loss: str | None = None,
    retain_loss: str | None = None,
    detach_saturation: bool = True,
    legacy: bool = False,
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
        reference: starting model, for methods that compare with it; on the same device, not changed.
        scorer: for learned weights; None scores every token 1/2.
        score_offset: added to the logits of learned scores, for a scorer with a prior: its `offset` of each row, one after
            another, shape (counted tokens,).
        token_weights: weights to use instead of the method's own, in [0, 1], shape (batch, length), not shifted; required
            for weightings that are computed once before training (labels come from the batch).
        alternate: preferred answers to the forget prompts, for methods that learn from them.
        refusal_ids: tokens of the refusal that JensUn aims at.
        weighting: replace the method's token weighting.
        forget_loss: replace its forget loss.
        retain_loss: replace its retain loss.
        detach_saturation: treat the saturation factor as a constant.
        legacy: JensUn as its published code computes it.
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
        legacy=legacy,
        **hyperparameters,
    )
    rows = {"forget": TokenBatch.of(forget, name="forget")}
    if retain is not None and decided.needs_retain:
        rows["retain"] = TokenBatch.of(retain, name="retain")
    if alternate is not None and decided.needs_alternate:
        rows["alternate"] = TokenBatch.of(alternate, name="alternate")
    if legacy and decided.forgetter.ids == "refusal":
        rows = {name: _everywhere(batch) for name, batch in rows.items()}
    wanted = wanted_of(decided, layers=len(decoder_layers(unwrap(model))) if decided.layered else 0)
    compared = any(not what.nothing for name, what in wanted.items())
    if compared and reference is None:
        raise ValueError(f"method {decided.name!r} compares with the starting model; give it as reference.")
    seen = live_reference(reference, rows, wanted, layout=layout) if compared and reference is not None else Reference()
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


def wanted_of(recipe: Recipe, *, layers: int) -> dict[str, Wanted]:
    """What of the starting model the losses of a recipe need in every step, by set of rows.

    Args:
        recipe: the recipe.
        layers: decoder layers of the model, for a recipe that reads one.
    """
    loss, retainer = recipe.forgetter, recipe.retainer
    wanted = {"forget": Wanted(logps=loss.needs_ref_logps, states=loss.needs_teacher)}
    if retainer is not None:
        layer = recipe.layer(layers) if retainer.layer else None
        wanted["retain"] = Wanted(states=retainer.needs_teacher, layer=layer)
    if loss.needs_alternate:
        wanted["alternate"] = Wanted(logps=loss.needs_ref_logps)
    return wanted


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
    counts, given = denominators or Denominators(), given or Given()
    rows = _rows(recipe, forget, retain, alternate)
    loss = recipe.forgetter
    layer = recipe.layer(len(decoder_layers(unwrap(model)))) if recipe.layered else None
    entropy = any(weighter.needs_entropy for weighter in recipe.weighters) and given.token_weights is None
    comparisons = {"forget": _forget_comparison(recipe, rows["forget"], given)}
    if (retainer := recipe.retainer) is not None and retainer.distance is not None:
        comparisons["retain"] = Comparison(retainer.distance, _teacher(given.reference.retain, recipe))
    outs = dict(
        zip(
            rows,
            forward_tokens(
                model,
                list(rows.values()),
                entropy_temperature=recipe.values["temperature"] if entropy else None,
                comparisons=[comparisons.get(name) for name in rows],
                layer=layer,
                stop=not recipe.needs_head,
                layout=layout,
            ),
            strict=True,
        )
    )
    out = outs["forget"]
    terms = _terms(recipe, out, outs.get("alternate"), given)
    weights, factor = token_weights(
        recipe,
        out,
        rows["forget"],
        scorer=scorer,
        instead=given.token_weights,
        fixed=given.fixed_weights,
        score_offset=given.score_offset,
    )
    values = recipe.forget_values(terms, weights)
    forget_term = reduced(
        values,
        weights,
        out.mask,
        loss.reduction,
        tokens=counts.forget_tokens,
        rows=counts.forget_rows,
        selected=counts.selected,
    )
    total, retain_term = recipe.values["forget_weight"] * forget_term, None
    if retainer is not None:
        kept, reference = outs["retain"], given.reference
        if retainer.layer:
            assert kept.layer_states is not None
            if reference.retain_layer is None:
                raise ValueError(f"method {recipe.name!r} compares with the starting model; give its reference.")
            moved = kept.spread(
                squared_distance(kept.layer_states, reference.retain_layer.to(kept.layer_states.device))
            )
            retain_term = mean_of_means(moved, kept.mask, count=counts.retain_rows)
        else:
            each = nll(kept.logps) if kept.distance is None else kept.distance
            retain_term = token_mean(each, kept.mask, count=counts.retain_tokens)
        total = total + recipe.values["retain_weight"] * retain_term
    return UnlearningLoss(total, forget_term, retain_term, weights, terms, factor, out)


def reduced(
    values: Tensor,
    weights: Tensor,
    mask: Tensor,
    reduction: Reduction,
    *,
    tokens: float | None = None,
    rows: float | None = None,
    selected: float | None = None,
) -> Tensor:
    """Average the values of a forget loss; the counts are those of the whole batch this one is part of."""
    if reduction == "sequences":
        return sequence_mean(values, count=rows)
    if reduction == "row_means":
        return mean_of_means(values, mask, count=rows)
    if reduction == "selected":
        return selected_mean(values, weights, mask, count=selected)
    return token_mean(values, mask, count=tokens)


def _rows(
    recipe: Recipe, forget: Batch, retain: Batch | None, alternate: Batch | None
) -> dict[str, TokenBatch]:  # fmt: skip
    """The batches that the forward pass runs over."""
    rows = {"forget": TokenBatch.of(forget, name="forget")}
    if recipe.needs_retain:
        if retain is None:
            raise ValueError(f"method {recipe.name!r} needs a retain batch; give one or set retain_loss='none'.")
        rows["retain"] = TokenBatch.of(retain, name="retain")
    if recipe.needs_alternate:
        if alternate is None:
            raise ValueError(f"method {recipe.name!r} needs alternate answers to the forget prompts.")
        rows["alternate"] = TokenBatch.of(alternate, name="alternate")
    if recipe.forgetter.on_alternate:
        rows["forget"] = rows.pop("alternate")
    return rows


def _teacher(teacher: Teacher | None, recipe: Recipe) -> Teacher:
    if teacher is None:
        raise ValueError(f"method {recipe.name!r} compares with the starting model; give its reference.")
    return teacher


def _forget_comparison(recipe: Recipe, forget: TokenBatch, given: Given) -> Comparison | None:
    loss = recipe.forgetter
    if loss.distance is None:
        return None
    mask, ids = forget.mask, None
    if loss.ids == "own":
        ids = forget.labels[:, 1:][mask][:, None]
    elif loss.ids == "refusal":
        if not given.refusal_ids:
            raise ValueError(f"method {recipe.name!r} needs refusal_ids, the tokens of the refusal it aims at.")
        refusal = torch.tensor(given.refusal_ids, device=mask.device)
        place = (mask.cumsum(1) - 1)[mask]
        ids = refusal.expand(place.shape[0], -1) if recipe.legacy else refusal[place % refusal.shape[0]][:, None]
    teacher = _teacher(given.reference.forget, recipe) if loss.needs_teacher else None
    return Comparison(loss.distance(**recipe.numbers(loss.hyperparameters)), teacher, ids)


def _terms(recipe: Recipe, out: TokenOutputs, alternate: TokenOutputs | None, given: Given) -> LossTerms:
    loss, reference = recipe.forgetter, given.reference
    ref_logps = preferred = None
    distance = out.distance
    if loss.needs_ref_logps:
        if reference.forget_logps is None:
            raise ValueError(f"method {recipe.name!r} compares with the starting model; give its reference.")
        ref_logps = out.spread(reference.forget_logps.to(out.logps))
    if alternate is not None:
        assert reference.alternate_logps is not None
        ratio = alternate.logps - alternate.spread(reference.alternate_logps.to(alternate.logps))
        preferred = ratio.sum(dim=1)
    if loss.steers:
        assert out.layer_states is not None
        states = out.layer_states
        target = steering_vector(states.shape[-1], coefficient=recipe.values["steering_coeff"]).to(states.device)
        distance = out.spread(squared_distance(states, target))
    return LossTerms(out.logps, out.mask, ref_logps, preferred, distance)


def _everywhere(batch: TokenBatch) -> TokenBatch:
    """Every real token counted, the prompt's too."""
    labels = torch.where(batch.attention_mask, batch.input_ids, torch.full_like(batch.input_ids, IGNORE_INDEX))
    return dataclasses.replace(batch, labels=labels)
