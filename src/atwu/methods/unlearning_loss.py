"""`unlearning_loss`: the loss of any method on batches at hand, without a trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from atwu.data.schema import IGNORE_INDEX
from atwu.methods.component_inputs import LossInputs
from atwu.methods.objective import UnlearningLoss, batches_of, recipe_loss
from atwu.methods.recipe import recipe
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import LayoutChoice
from atwu.modeling.layers import decoder_layers
from atwu.modeling.reference import Reference, live_reference
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
    refusal_ids: Sequence[int] = (),
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
        preserve: keep the tokens of the forget answers that the weighting spares: kl, nll or none.
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
        preserve=preserve,
        configuration=configuration,
        **options,
    )
    rows = batches_of(decided, {"forget": forget, "retain": retain, "alternate": alternate})
    rows |= {name: _everywhere(rows[name]) for name in decided.everywhere}
    if token_weights is not None and "forget" in decided.everywhere:
        token_weights = nn.functional.pad(token_weights, (0, 1), value=1.0)
    wanted = decided.wanted(len(decoder_layers(unwrap(model))) if decided.layered else 0)
    if wanted and reference is None:
        raise ValueError(f"method {decided.name!r} compares with the starting model; give it as reference.")
    seen = live_reference(reference, rows, wanted, layout=layout) if wanted and reference is not None else Reference()
    return recipe_loss(
        model,
        rows,
        decided,
        scorer=scorer,
        given=LossInputs(seen, token_weights=token_weights, score_offset=score_offset, refusal_ids=tuple(refusal_ids)),
        layout=layout,
    )


def _everywhere(batch: TokenBatch) -> TokenBatch:
    """Every position counted, as in `atwu.training.training_rows`: the rows are one token longer."""
    ids, mask = (nn.functional.pad(part, (0, 1)) for part in (batch.input_ids, batch.attention_mask))
    width = mask.shape[1]
    last = width - 1 - mask.flip(1).int().argmax(dim=1)
    row = torch.arange(mask.shape[0], device=mask.device)
    ids[row, last + 1], mask[row, last + 1] = ids[row, last], True
    return TokenBatch(ids, mask, ids.masked_fill(~mask, IGNORE_INDEX))
