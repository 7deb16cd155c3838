"""`unlearning_loss`: compute the loss of any method on given batches, without a trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from atwu.data.schema import IGNORE_INDEX
from atwu.methods.component_inputs import LossInputs
from atwu.methods.objective import UnlearningLoss, batches_of, micro_batch_loss
from atwu.methods.recipe import recipe
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import LayoutChoice
from atwu.modeling.layers import decoder_layers
from atwu.modeling.reference import Reference, reference_of_batch
from atwu.modeling.single_pass import unwrap

Batch = Mapping[str, Tensor] | TokenBatch


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
    retain_alternate: Batch | None = None,
    prompted: Batch | None = None,
    refusal_ids: Sequence[int] = (),
    refusal_direction: Tensor | None = None,
    weighting: str | Callable[..., Any] | None = None,
    forget_loss: str | Callable[..., Any] | None = None,
    retain_loss: str | None = None,
    preserve: str | None = None,
    configuration: str = "ours",
    layout: LayoutChoice = "auto",
    **options: Any,
) -> UnlearningLoss:
    """Compute any method's loss on one forget batch and one retain batch.

    Args:
        model: the causal language model being unlearned.
        forget: `input_ids`, `attention_mask`, `labels` of shape (batch, length), labels -100 on uncounted tokens; also
            `token_labels` (1 on labelled tokens) for the weighting `labels`.
        retain: the same for retain rows; required unless the method has no retain loss.
        method: a name listed by `atwu methods`.
        reference: the original model, for methods that need it; on the same device, not changed.
        scorer: for learned weights; None gives every token the score 1/2.
        score_offset: added to the logits of learned scores, for a scorer with a prior: its `offset` of each row, concatenated,
            shape (counted tokens,).
        token_weights: weights in [0, 1] that replace the method's own, shape (batch, length), not shifted; required for
            weightings that are computed before training (except `labels`, which come from the batch).
        alternate: preferred answers to the forget prompts, for methods that use them.
        retain_alternate: refusals of the retain prompts, for methods that use them.
        prompted: forget answers behind the prompt of a teacher, for methods that use them; with the counted tokens of `forget`.
        refusal_ids: token ids of JensUn's refusal.
        refusal_direction: LUNAR's direction towards refused questions, shape (hidden,).
        weighting: replace the method's token weighting, by name or by a function.
        forget_loss: replace its forget loss, by name or by a function.
        retain_loss: replace its retain loss.
        preserve: keep the answer tokens that the weighting spares: kl, nll or none.
        configuration: sets options that are not given: ours, authors or paper.
        layout: see `forward_tokens`.
        options: `forget_weight`, `retain_weight`, `beta`, ...; by default the published values of the method.

    Raises:
        ValueError: unknown names, hyperparameters that the method does not have, missing inputs or wrong shapes.
    """
    decided = recipe(
        method,
        weighting=weighting,
        forget_loss=forget_loss,
        retain_loss=retain_loss,
        preserve=preserve,
        configuration=configuration,
        **options,
    )
    given = {"forget": forget, "retain": retain, "alternate": alternate, "retain_alternate": retain_alternate}
    rows = batches_of(decided, given)
    rows |= {name: _everywhere(rows[name]) for name in decided.all_positions}
    if token_weights is not None and "forget" in decided.all_positions:
        token_weights = nn.functional.pad(token_weights, (0, 1), value=1.0)
    specs = decided.reference_specs(len(decoder_layers(unwrap(model))) if decided.layered else 0)
    if specs and reference is None:
        raise ValueError(f"method {decided.name!r} needs the original model; pass it as reference.")
    read = {**rows, "forget": _behind(prompted, rows["forget"])} if "prompted_rows" in decided.needs else rows
    references = Reference()
    if reference is not None and specs:
        references = reference_of_batch(reference, read, specs, layout=layout)
    return micro_batch_loss(
        model,
        rows,
        decided,
        scorer=scorer,
        inputs=LossInputs(
            references,
            token_weights=token_weights,
            score_offset=score_offset,
            refusal_ids=tuple(refusal_ids),
            refusal_direction=refusal_direction,
        ),
        layout=layout,
    )


def _behind(prompted: Batch | None, forget: TokenBatch) -> TokenBatch:
    """Return the forget answers behind a prompt.

    Raises:
        ValueError: they are missing, or their counted tokens are others.
    """
    if prompted is None:
        raise ValueError("the teacher of this method reads a prompt; pass its forget rows as prompted.")
    batch = TokenBatch.of(prompted, name="prompted")
    counted, expected = (each.labels[:, 1:][each.mask] for each in (batch, forget))
    if not torch.equal(counted, expected):
        raise ValueError("prompted and forget have different answers; both need the same labels in the same order.")
    return batch


def _everywhere(batch: TokenBatch) -> TokenBatch:
    """Count every position, as in `atwu.training.training_rows`; the rows become one token longer."""
    ids, mask = (nn.functional.pad(tensor, (0, 1)) for tensor in (batch.input_ids, batch.attention_mask))
    width = mask.shape[1]
    last = width - 1 - mask.flip(1).int().argmax(dim=1)
    row = torch.arange(mask.shape[0], device=mask.device)
    ids[row, last + 1], mask[row, last + 1] = ids[row, last], True
    return TokenBatch(ids, mask, ids.masked_fill(~mask, IGNORE_INDEX))
