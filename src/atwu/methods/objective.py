"""Compute the loss of one micro-batch: one forward pass, token weighting, forget loss and retain loss.

The trainers use `micro_batch_loss`; `unlearning_loss` is the same without a trainer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.data.schema import IGNORE_INDEX
from atwu.methods.component import PreserveLoss, RetainLoss
from atwu.methods.component_inputs import (
    LossInputs,
    LossTerms,
    NormalizationCounts,
    WeightingContext,
    reduce_loss,
    sequence_mean,
    token_mean,
)
from atwu.methods.recipe import Recipe, recipe
from atwu.methods.weightings.model_based import LearnedScores, combine_weights
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import TokenOutputs, forward_tokens
from atwu.modeling.layers import decoder_layers, unwrap
from atwu.modeling.reference import reference_of_batch

_SMALL = 1e-5
"""Added to the gradient norm in the denominator of a ratio of two."""
_LARGEST_RATIO = 1e6
"""Limit of that ratio: a term of almost no gradient must not blow up the other."""


@dataclass(frozen=True, slots=True)
class UnlearningLoss:
    """The loss of one micro-batch with its terms and inputs.

    Per-token tensors use the shifted axis: shape (batch, length - 1), entry j refers to token j + 1. The shape is
    (batch, length) if the forget loss counts the prediction of every position (`all_positions`).
    """

    loss: Tensor
    """`forget_weight * forget + retain_weight * retain + preserve_weight * preserve + replacement_weight * replacement`, a
    scalar with gradient.

    The first term is scaled if the forget loss is `balanced`.
    """
    forget: Tensor
    """Forget loss without `forget_weight`, a scalar."""
    retain: Tensor | None
    """Retain loss without `retain_weight`, a scalar; None if the method has none."""
    preserve: Tensor | None
    """Preserve loss without `preserve_weight`, a scalar; None without a preserve loss."""
    replacement: Tensor | None
    """Replacement loss without `replacement_weight`, a scalar; None without one."""
    token_weights: Tensor
    """Weight of each forget token, without gradient; 0 outside the loss mask."""
    terms: LossTerms
    factor: Tensor | None
    """Weights combined with the learned scores, one per token; None unless two weightings are combined and one is learned."""
    outputs: TokenOutputs
    """Output of the forward pass for the forget rows."""
    without_forget: Tensor | None = None
    """`loss` without its first term, a scalar; None if there is no other."""
    kept: Tensor | None = None
    """The retain and preserve terms of `loss`, a scalar; None without either."""
    retain_per_row: Tensor | None = None
    """Sum of the retain loss over the tokens of each retain row, without gradient, shape (retain rows,); None without one."""

    @property
    def logps(self) -> Tensor:
        """Log-probability of each forget token, with gradient; 0 outside the loss mask."""
        return self.terms.logps

    @property
    def mask(self) -> Tensor:
        """The loss mask: True on forget tokens that the loss reads."""
        return self.terms.mask


def micro_batch_loss(
    model: nn.Module,
    batches: Mapping[str, Any],
    recipe: Recipe,
    *,
    scorer: TokenScorer | None = None,
    inputs: LossInputs | None = None,
    batch_counts: NormalizationCounts | None = None,
) -> UnlearningLoss:
    """Compute the loss of one micro-batch.

    Args:
        batches: token batches `forget`, `retain`, `alternate` and `retain_alternate`; only those that the recipe needs. Other
            keys are ignored.
        scorer: for learned weights; None gives every token the score 1/2.
        batch_counts: counts of the larger batch that this micro-batch belongs to; by default its own counts.

    Raises:
        ValueError: a batch or another input that the recipe needs is missing.
    """
    counts = batch_counts or NormalizationCounts()
    inputs = inputs or LossInputs()
    rows = batches_of(recipe, batches)
    forget_loss = recipe.forget_component
    if forget_loss.trained_answer == "alternate":
        # From here on the alternate answer takes the place of the forget answer, which such a loss does not read.
        rows["forget"] = rows.pop("alternate")
    outs = _forward(model, rows, recipe, inputs)
    out = outs["forget"]
    terms = _terms(recipe, out, outs.get("alternate"), inputs)
    weights, factor = _weights(recipe, out, rows["forget"], scorer, inputs)
    forget_term = reduce_loss(
        forget_loss.values(terms, weights),
        weights,
        forget_loss.averaged(out.mask),
        forget_loss.reduction,
        tokens=counts.averaged_tokens,
        rows=counts.forget_rows,
        selected=counts.selected,
    )
    weighted_forget = recipe.factors.forget_weight * forget_term

    # Each term that the recipe has is added in this order: a sum of floats depends on it in its last bits.
    others: list[Tensor] = []
    retain_term = preserve_term = replacement_term = kept = retain_per_row = None
    if recipe.retain_component is not None:
        retain_term, retain_per_row = _retain_term(recipe.retain_component, outs, inputs, counts)
        if forget_loss.balanced and torch.is_grad_enabled():
            weighted_forget = weighted_forget * _norm_ratio((retain_term, outs["retain"]), (forget_term, out))
        others.append(recipe.factors.retain_weight * retain_term)
    if recipe.preserve_component is not None:
        preserve_term = _preserve_term(recipe.preserve_component, out, weights, counts)
        others.append(recipe.preserve_component.preserve_weight * preserve_term)
    if others:
        # What changes of the forget gradient leave alone (`gradient_changes.py`); a replacement loss is no part of it.
        kept = sum(others[1:], start=others[0])
    if recipe.replacement_component is not None:
        learned = outs["alternate"]
        row_losses = recipe.replacement_component.values(learned.logps, learned.mask)
        replacement_term = sequence_mean(row_losses, count=counts.forget_rows)
        others.append(recipe.replacement_component.replacement_weight * replacement_term)
    without_forget = None
    if others:
        without_forget = sum(others[1:], start=others[0])
    return UnlearningLoss(
        loss=sum(others, start=weighted_forget),
        forget=forget_term,
        retain=retain_term,
        preserve=preserve_term,
        replacement=replacement_term,
        token_weights=weights,
        terms=terms,
        factor=factor,
        outputs=out,
        without_forget=without_forget,
        kept=kept,
        retain_per_row=retain_per_row,
    )


def _forward(
    model: nn.Module, rows: Mapping[str, TokenBatch], recipe: Recipe, inputs: LossInputs
) -> dict[str, TokenOutputs]:
    """Run the model once on all rows of a step, with what its losses compare at each token."""
    comparisons = {"forget": recipe.forget_component.comparison("forget", rows["forget"], inputs)}
    # One comparison per set of rows is enough: `recipe` refuses two losses that compare distributions on the forget rows.
    if recipe.preserve_component is not None and comparisons["forget"] is None:
        comparisons["forget"] = recipe.preserve_component.comparison("forget", rows["forget"], inputs)
    if recipe.retain_component is not None:
        comparisons["retain"] = recipe.retain_component.comparison("retain", rows["retain"], inputs)
    layer = temperature = None
    if recipe.layered:
        layer = recipe.layer(len(decoder_layers(unwrap(model))))
    if inputs.token_weights is None:  # given weights replace those of a weighting, so nobody would read its entropy
        temperature = recipe.entropy_temperature
    # RMU and LUNAR read the output of one layer; what lies above it is not computed.
    outputs = forward_tokens(
        model,
        list(rows.values()),
        entropy_temperature=temperature,
        comparisons=[comparisons.get(name) for name in rows],
        layer=layer,
        stop=not recipe.reads_head,
    )
    return dict(zip(rows, outputs, strict=True))


def _retain_term(
    loss: RetainLoss, outs: Mapping[str, TokenOutputs], inputs: LossInputs, counts: NormalizationCounts
) -> tuple[Tensor, Tensor]:
    """Return the retain loss, a scalar, and its sum over the tokens of each row without gradient, shape (rows,)."""
    retain = outs["retain"]
    if loss.reads_alternates:
        values = loss.values_against(retain, outs["retain_alternate"])
    else:
        values = loss.values(retain, inputs.reference)
    if values.dim() == 1:
        per_row = values.detach()
    else:
        per_row = (values.detach() * retain.mask).sum(1)
    term = reduce_loss(
        values, retain.mask, retain.mask, loss.reduction, tokens=counts.retain_tokens, rows=counts.retain_rows
    )
    return term, per_row


def _preserve_term(loss: PreserveLoss, out: TokenOutputs, weights: Tensor, counts: NormalizationCounts) -> Tensor:
    """Return the preserve loss, a scalar: each forget token has the complement of its weight (`PreserveLoss`)."""
    weights = weights.detach()
    # A row whose weights are all 0 is kept whole; tiny instead of 0 avoids 0 / 0.
    largest = weights.amax(dim=1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    return token_mean((1 - weights / largest) * loss.values(out), out.mask, count=counts.forget_tokens)


def _norm_ratio(*terms: tuple[Tensor, TokenOutputs]) -> Tensor:
    """Norm of the first term's gradient in the logits over that of the second; 1 where a term is almost 0."""
    norms = []
    for term, out in terms:
        # By the chain rule: the gradient in the logits of a token is that in its distance times the distance's own, whose
        # squared norm the forward pass has computed block by block (`slope`). No (tokens x vocabulary) tensor is kept.
        assert out.distance is not None
        assert out.slope is not None
        (share,) = torch.autograd.grad(term, out.distance, retain_graph=True)
        norms.append((share.square() * out.slope).sum().sqrt())
    ratio = (norms[0] / (norms[1] + _SMALL)).clamp(max=_LARGEST_RATIO)
    smaller_term = torch.stack([term.detach() for term, _ in terms]).min()
    return torch.where(smaller_term > _SMALL, ratio, torch.ones_like(ratio))


def batches_of(recipe: Recipe, batches: Mapping[str, Any]) -> dict[str, TokenBatch]:
    required = {"forget": "forget rows"}
    if recipe.retain_component is not None:
        required["retain"] = "a retain batch; pass one or set retain_loss='none'"
    if recipe.answering is not None:
        required["alternate"] = "alternate answers to the forget prompts"
    if recipe.retain_component is not None and recipe.retain_component.reads_alternates:
        required["retain_alternate"] = "alternate answers to the retain prompts"
    for name, what in required.items():
        if batches.get(name) is None:
            raise ValueError(f"method {recipe.name!r} needs {what}.")
    return {name: TokenBatch.of(batches[name], name=name) for name in required}


def _terms(recipe: Recipe, out: TokenOutputs, alternate: TokenOutputs | None, inputs: LossInputs) -> LossTerms:
    loss, reference = recipe.forget_component, inputs.reference
    ref_logps = preferred = None
    if "logps" in loss.original:
        ref_logps = out.to_grid(reference.logps["forget"].to(out.logps))
    # Only DPO compares the alternate answer with the original model; other losses read its log-probabilities alone.
    if alternate is not None and "alternate" in reference.logps:
        ratio = alternate.logps - alternate.to_grid(reference.logps["alternate"].to(alternate.logps))
        preferred = ratio.sum(dim=1)
    alternate_logps = alternate_mask = None
    if alternate is not None:
        alternate_logps, alternate_mask = alternate.logps, alternate.mask
    return LossTerms(
        logps=out.logps,
        mask=out.mask,
        ref_logps=ref_logps,
        preferred=preferred,
        alternate_logps=alternate_logps,
        alternate_mask=alternate_mask,
        distance=loss.distance(out, inputs),
        learned=recipe.scores is not None,
    )


# In a step of the model the scores are constants; a scorer step computes them anew, with gradient (`scorer_training.py`).
@torch.no_grad()
def _weights(
    recipe: Recipe, out: TokenOutputs, forget: TokenBatch, scorer: TokenScorer | None, inputs: LossInputs
) -> tuple[Tensor, Tensor | None]:
    """Compute the weights of the forget tokens, (batch, length - 1), and the factor on learned scores."""
    fixed = inputs.fixed_weights
    if inputs.token_weights is not None:
        shape = forget.labels.shape
        if inputs.token_weights.shape != shape:
            raise ValueError(
                f"token_weights must have the shape of the labels {tuple(shape)}, got {tuple(inputs.token_weights.shape)}."
            )
        # Per-token tensors are shifted: the first token has no prediction, so no weight either.
        return inputs.token_weights[:, 1:].to(out.logps) * out.mask, None
    if recipe.weighting in fixed:  # one weighting, or two that were both combined before training
        return out.to_grid(fixed[recipe.weighting].to(out.logps)), None
    scores = None
    if scorer is not None:
        scores = scorer(out.hidden(scorer.hidden_position), inputs.score_offset)
    context = WeightingContext(out, forget, scores)
    weights = []
    for name, weighting in zip(recipe.weighting_names, recipe.weighting_components, strict=True):
        if name in fixed:
            weights.append(out.to_grid(fixed[name].to(out.logps)))
        else:
            weights.append(weighting.weights(context) * out.mask)
    if recipe.combination is None:
        return weights[0], None
    # A scorer step computes new scores for the same tokens and multiplies them by the weights of the other weighting.
    learned = [isinstance(weighting, LearnedScores) for weighting in recipe.weighting_components]
    factor = None
    if any(learned):
        factor = weights[1 - learned.index(True)]
    return combine_weights(weights[0], weights[1], out.mask, how=recipe.combination), factor


def unlearning_loss(
    model: nn.Module,
    rows: Mapping[str, Any],
    method: str,
    *,
    reference: nn.Module | None = None,
    scorer: TokenScorer | None = None,
    inputs: LossInputs | None = None,
    **options: Any,
) -> UnlearningLoss:
    """Compute any method's loss on one batch, without a trainer.

    Args:
        model: the causal language model being unlearned.
        rows: batches by name, as `collate_pairs` makes them; other keys are ignored. Each has `input_ids`, `attention_mask` and
            `labels` of shape (batch, length), labels -100 on uncounted tokens. `forget` may have `token_labels` (1 on labelled
            tokens) for the weighting `labels`. `retain` is required unless the method has no retain loss. Some methods read
            `alternate` (preferred answers to the forget prompts), `retain_alternate` (refusals of the retain prompts), and the
            forget answers behind the prompt of a teacher: `prompted`, or `expert` and `novice` (ELM).
        method: a name listed by `atwu methods`.
        reference: the original model, for methods that need it; on the same device, not changed.
        scorer: for learned weights; None gives every token the score 1/2.
        inputs: what a trainer computes before training, except the outputs of the reference. `token_weights` are required for
            weightings that are computed before training, except `labels`.
        options: components (`weighting`, `retain_loss`, ...) and options of components (`beta`, ...) instead of the method's
            own; see `recipe`.

    Raises:
        ValueError: unknown names, hyperparameters that the method does not have, missing inputs or wrong shapes.
    """
    decided = recipe(method, **options)
    inputs = inputs or LossInputs()
    batches = batches_of(decided, rows)
    for name, appends in decided.all_positions.items():
        batches[name] = _count_all_positions(batches[name], appends=appends)
    if inputs.token_weights is not None and decided.all_positions.get("forget"):
        # A weight per prediction: the appended token has none of its own, and counts fully.
        longer = nn.functional.pad(inputs.token_weights, (0, 1), value=1.0)
        inputs = dataclasses.replace(inputs, token_weights=longer)
    layers = 0
    if decided.layered:
        layers = len(decoder_layers(unwrap(model)))
    specs = decided.reference_specs(layers)
    if specs:
        if reference is None:
            raise ValueError(f"method {decided.name!r} needs the original model; pass it as reference.")
        prompted = {
            # The forget rows of the batch are those without a prompt, so those behind one have another name there.
            name: _behind(rows, {"forget": "prompted"}.get(name, name), batches["forget"])
            for name in decided.forget_component.teacher_prompts()
        }
        outputs = reference_of_batch(reference, batches | prompted, specs)
        inputs = dataclasses.replace(inputs, reference=outputs)
    return micro_batch_loss(model, batches, decided, scorer=scorer, inputs=inputs)


def _behind(rows: Mapping[str, Any], name: str, forget: TokenBatch) -> TokenBatch:
    """Return the batch of forget answers behind a prompt."""
    if rows.get(name) is None:
        raise ValueError(f"the teacher of this method reads a prompt; pass its forget rows as {name}.")
    batch = TokenBatch.of(rows[name], name=name)
    counted = batch.labels[:, 1:][batch.mask]
    expected = forget.labels[:, 1:][forget.mask]
    # Distances compare the two token by token, in this order.
    if not torch.equal(counted, expected):
        raise ValueError(f"{name} and forget have different answers; both need the same labels in the same order.")
    return batch


def _count_all_positions(batch: TokenBatch, *, appends: bool) -> TokenBatch:
    """Count every position, like `count_all_positions` in `training/row_sets.py`; `appends` makes the rows a token longer."""
    if not appends:
        labels = batch.input_ids.masked_fill(~batch.attention_mask, IGNORE_INDEX)
        return TokenBatch(batch.input_ids, batch.attention_mask, labels)
    ids, mask = (nn.functional.pad(tensor, (0, 1)) for tensor in (batch.input_ids, batch.attention_mask))
    width = mask.shape[1]
    last = width - 1 - mask.flip(1).int().argmax(dim=1)  # padding may be on either side
    row = torch.arange(mask.shape[0], device=mask.device)
    # Any id would do: the loss of such a method reads the prediction before the appended token, not the token.
    ids[row, last + 1], mask[row, last + 1] = ids[row, last], True
    return TokenBatch(ids, mask, ids.masked_fill(~mask, IGNORE_INDEX))
