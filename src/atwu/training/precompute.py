"""Tables that training steps read by row index, computed from the original model and the rows before training.

Values of the original model in them come from `reference_tables.py`. At the end is the AUROC of token weights that is logged.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from atwu._cache import short_hash
from atwu._files import file_digest
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.pairing import PairedDataset
from atwu.data.schema import Example
from atwu.methods.component import FixedWeighting
from atwu.methods.component_inputs import LossInputs, PrecomputeContext
from atwu.methods.recipe import Recipe
from atwu.methods.weightings.combine import combined
from atwu.methods.weightings.contrast import TokenLogps, evidence_of
from atwu.methods.weightings.token_scorer import SCORER_CONFIG_NAME, SCORER_WEIGHTS_NAME, TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.fast_paths import can_stop_at, fast_path_support
from atwu.modeling.fingerprint import stored_weights_fingerprint
from atwu.modeling.forward import LayoutChoice
from atwu.modeling.layers import decoder_layers, text_config
from atwu.modeling.load import load_model
from atwu.modeling.name_neighbours import NameNeighbours
from atwu.modeling.reference import ReferenceSpec, TokenTable
from atwu.training.config import UnlearnConfig
from atwu.training.progress import Say
from atwu.training.reference_tables import OriginalModel, ReferenceSource, prepare_references
from atwu.training.training_rows import UnlearningRows


@dataclass(frozen=True, slots=True)
class PrecomputedTables:
    references: ReferenceSource
    fixed: Mapping[str, TokenTable]
    """Fixed weights, by name of the weighting."""
    text: TokenTable
    """True on answer text tokens, False on terminal tokens."""
    offsets: TokenTable | None
    """Offsets that the scorer's prior adds to its logits."""
    refusal_ids: tuple[int, ...]
    refusal_direction: Tensor | None = None

    def loss_inputs(self, model: nn.Module, inputs: Mapping[str, Any], *, layout: LayoutChoice) -> LossInputs:
        rows, device = inputs["rows"], inputs["rows"].device
        return LossInputs(
            self.references.of(model, inputs, layout=layout),
            {name: table.rows(rows).to(device) for name, table in self.fixed.items()},
            score_offset=self.offset(inputs),
            refusal_ids=self.refusal_ids,
            refusal_direction=self.refusal_direction,
        )

    def offset(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """Return the offsets of a micro-batch's score logits, (tokens,)."""
        if self.offsets is None:
            return None
        rows = inputs["rows"]
        return self.offsets.rows(rows).to(rows.device)

    def labels(self, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return key-token labels and the mask of the answer text without the terminal token, on the shifted axis."""
        mask = TokenBatch.of(inputs["forget"]).mask
        text = torch.zeros_like(mask).masked_scatter(mask, self.text.rows(inputs["rows"]).to(mask.device))
        return inputs["forget"]["token_labels"][:, 1:] > 0, text

    def selected(self, inputs: Mapping[str, Any]) -> float:
        """Return the number of tokens that the single fixed weighting selects."""
        (table,) = self.fixed.values()
        return float(table.rows(inputs["rows"]).sum())


def digests_of_inputs(recipe: Recipe) -> dict[str, str]:
    """Return digests of everything a run reads besides its model and rows, and of its method."""
    plain, folders = recipe.as_plain(), {"scorer_from", *recipe.auxiliary}
    # Folder contents identify a run, not their paths.
    plain["settings"] = {name: value for name, value in recipe.settings.items() if name not in folders}
    digests = {"recipe": short_hash(plain)}
    if "scorer_from" in recipe.settings:
        folder = Path(recipe.settings["scorer_from"])
        digests["scorer_from"] = file_digest(*(folder / name for name in (SCORER_WEIGHTS_NAME, SCORER_CONFIG_NAME)))
    return digests | {
        name: stored_weights_fingerprint(recipe.settings[name]) for name in recipe.auxiliary if name in recipe.settings
    }


def precomputed_tables(
    start: OriginalModel,
    rows: UnlearningRows,
    pairs: PairedDataset,
    args: UnlearnConfig,
    *,
    recipe: Recipe,
    scorer: TokenScorer | None,
    encoder: Callable[[], Encoder],
    refusal_ids: tuple[int, ...],
    say: Say,
) -> PrecomputedTables:
    layers = len(decoder_layers(start.model)) if recipe.layered else 0
    wanted = recipe.reference_specs(layers)
    drawn = None
    if "retain" in wanted and not args.dataloader_drop_last:
        # Of a large retain set a run draws few rows. With dropped rows, the number of epochs is not known here.
        drawn = pairs.drawn(args.planned_epochs(len(pairs) - pairs.waiting))
    with nullcontext() if start.stays else _whole_on(args.device, start.model, recipe, wanted):
        fixed = fixed_tables(recipe, rows, start, encoder)
        references = prepare_references(
            start, wanted, rows.encoded, mode=args.reference, drawn=drawn, prompted=rows.prompted, say=say
        )
        direction = None
        if rows.refused is not None:
            direction = refusal_direction(start, rows, wanted["forget"])
    forget = rows.forget.rows
    # A terminal token has no place in the answer's text; it is no key token, so agreement with labels leaves it out.
    text = ([offset is not None for offset in row.counted(row.answer_offsets)] for row in forget)
    offsets = None
    if scorer is not None and scorer.prior is not None:
        offsets = _table(offset.numpy() for row in forget if (offset := scorer.offset(row)) is not None)
    return PrecomputedTables(references, fixed, _table(text, np.bool_), offsets, refusal_ids, direction)


def refusal_direction(start: OriginalModel, rows: UnlearningRows, wanted: ReferenceSpec) -> Tensor:
    """Mean state at the end of the refused questions minus that of the forget questions, shape (hidden,)."""
    refused, asked = (
        start.read(ends, wanted, what=what)["layer"].values.double().mean(0)
        for what, ends in (("refused", rows.refused or ()), ("asked", rows.asked or ()))
    )
    return (refused - asked).float()  # the means are in float64: their difference is small beside them


@contextmanager
def _whole_on(
    device: torch.device, model: nn.Module, recipe: Recipe, wanted: Mapping[str, ReferenceSpec]
) -> Iterator[None]:
    """Context in which the full original model is on the device, before it is sharded."""
    if not wanted and not recipe.reads_original:
        yield
        return
    waits = next(model.parameters()).device
    model.to(device)
    # Entered in all processes, also those that read the cache: a sharded model runs in all of them at once.
    fast_path_support(model, device)
    for layer in {what.layer for what in wanted.values()} - {None}:
        can_stop_at(model, cast(int, layer), device)
    yield
    model.to(waits)


def fixed_tables(
    recipe: Recipe, rows: UnlearningRows, start: OriginalModel, encoder: Callable[[], Encoder]
) -> dict[str, TokenTable]:
    """Return one table per fixed weighting of the recipe; a combination of two gives one table under the combined name.

    Args:
        encoder: creates the encoder of further rows; not called for encoded rows, which may come without a tokenizer.
    """
    context = PrecomputeContext(
        forget=rows.forget.rows,
        retain=None if rows.retain is None else rows.retain.rows,
        forget_text=rows.forget.examples,
        retain_text=None if rows.retain is None else rows.retain.examples,
        ref_logps=lambda: _per_row(start.read(rows.forget.rows, ReferenceSpec(logps=True), what="forget")["logps"]),
        logps_of=lambda folder: _logps_of_model(folder, rows.forget.rows, start),
        evidence=lambda: _evidence(rows.forget.examples or (), start, encoder()),
    )
    weights_by_name = {
        name: weighting.precompute(context)
        for name, weighting in zip(recipe.weighting_names, recipe.weighting_components, strict=True)
        if isinstance(weighting, FixedWeighting)
    }
    # Two fixed weightings are combined once, here; with a weighting of every step the loss combines them.
    if recipe.combination is not None and len(weights_by_name) == 2:
        first, second = ((torch.as_tensor(row)[None] for row in rows) for rows in weights_by_name.values())
        both = (
            combined(one, other, torch.ones_like(one, dtype=torch.bool), how=recipe.combination)
            for one, other in zip(first, second, strict=True)
        )
        return {recipe.weighting: _table(weights[0].numpy() for weights in both)}
    return {name: _table(rows) for name, rows in weights_by_name.items()}


def _table(rows: Iterable[Any], kind: type = np.float32) -> TokenTable:
    # Bytes that grow in place: a list of Python floats of a large set would take eight times the memory.
    flat, lengths = bytearray(), array("q")
    for row in rows:
        flat += np.asarray(row, dtype=kind).tobytes()
        lengths.append(len(row))
    return TokenTable(torch.frombuffer(flat, dtype=torch.bool if kind is np.bool_ else torch.float32), lengths)


def _evidence(examples: Sequence[Example], start: OriginalModel, encoder: Encoder) -> list[FloatArray]:
    """Compute the evidence of the units of each answer with the original model."""

    def read(rows: Sequence[Example]) -> list[TokenLogps]:
        encoded = encoder.encode_rows(rows, what="rows with other subjects").rows
        logps = _per_row(start.read(encoded, ReferenceSpec(logps=True), what="changed")["logps"])
        return [TokenLogps(values, row.counted(row.answer_offsets)) for values, row in zip(logps, encoded, strict=True)]

    return evidence_of(examples, read, NameNeighbours(start.model, encoder.tokenizer))


def _logps_of_model(name: str, rows: Sequence[EncodedRow], start: OriginalModel) -> list[FloatArray]:
    """Compute log-probabilities of each row's answer tokens under another model, which is loaded and freed."""
    model = load_model(name).to(next(start.model.parameters()).device)
    vocabulary = int(text_config(start.model).vocab_size)
    largest = max(max(row.input_ids) for row in rows)
    if vocabulary != (own := int(text_config(model).vocab_size)) or largest >= own:
        raise ValueError(
            f"{name} has a vocabulary of {own} tokens, the model to unlearn {vocabulary}; auxiliary models must use "
            "the same tokenizer."
        )
    other = OriginalModel(model, start.folder, nullcontext, progress=start.progress, name=Path(name).name, adapted=True)
    return _per_row(other.read(rows, ReferenceSpec(logps=True), what="forget")["logps"])


def _per_row(table: TokenTable) -> list[FloatArray]:
    return [table.rows([index]).double().numpy() for index in range(len(table))]


def count_labelled_rows(labels: Tensor, mask: Tensor) -> float:
    """Count the rows with both labelled and unlabelled counted tokens; arguments of shape (batch, tokens), bool."""
    labelled, other = (labels & mask).any(dim=1), (~labels & mask).any(dim=1)
    return float((labelled & other).sum())


@torch.no_grad()
def row_auroc(weights: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """AUROC per row: probability that a labelled token has a larger weight than an unlabelled one; ties count half.

    Returns:
        AUROC in [0, 1] of each row with both kinds of tokens, 0 for other rows, shape (batch,).
    """
    labelled, other = labels & mask, ~labels & mask
    difference = weights[:, :, None] - weights[:, None, :]
    pairs = labelled[:, :, None] & other[:, None, :]
    wins = ((difference > 0).double() + 0.5 * (difference == 0).double()) * pairs
    return wins.sum(dim=(1, 2)) / pairs.sum(dim=(1, 2)).clamp(min=1)
