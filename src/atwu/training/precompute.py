"""Tables that training steps read by row index, computed from the original model and the rows before training.

Outputs of the original model, the reference, are computed once and cached on disk, or in every step by the model with its
adapters disabled or by a second, frozen model. Values that a recipe does not need are not computed.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import shutil
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import psutil
import torch
from torch import Tensor, nn

from atwu._cache import cached_tensors, hash_of_list, is_cached, run_key, short_hash
from atwu._files import file_digest
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.pairing import PairedDataset, collate_rows
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.methods.component import FixedWeighting
from atwu.methods.component_inputs import LossInputs, PrecomputeContext
from atwu.methods.recipe import Recipe
from atwu.methods.weightings.contrast import TokenLogps, evidence_of
from atwu.methods.weightings.model_based import combine_weights
from atwu.methods.weightings.related_names import NameNeighbours
from atwu.methods.weightings.token_scorer import SCORER_CONFIG_NAME, SCORER_WEIGHTS_NAME, TokenScorer
from atwu.modeling.adapters import adapters_of, equals_base, original_model
from atwu.modeling.batches import TokenBatch
from atwu.modeling.distribution_distance import Teacher
from atwu.modeling.head import OutputHead
from atwu.modeling.layers import decoder_layers, text_config
from atwu.modeling.load import load_model, model_fingerprint, stored_weights_fingerprint
from atwu.modeling.reference import (
    Reference,
    ReferenceSpec,
    TokenTable,
    compute_reference,
    counted_tokens,
    plain_head,
    reference_of_batch,
)
from atwu.modeling.single_pass import can_stop_at, fast_path_support
from atwu.training.config import UnlearnConfig
from atwu.training.progress import Say
from atwu.training.row_sets import RowSet
from atwu.training.training_rows import UnlearningRows

Mode = Literal["cache", "model", "adapters"]
_ROWS = {"forget": "rows", "expert": "rows", "novice": "rows", "retain": "retain_rows", "alternate": "alternate_rows"}
"""Set of rows -> key of their indices in a micro-batch."""
SHARE_OF_DISK = 0.25
SHARE_OF_MEMORY = 0.5
"""Maximum shares of free disk space and of memory that an automatically chosen cache may use."""


@dataclass(slots=True)
class OriginalModel:
    """Evaluates rows with the original model, or an auxiliary one, through a cache on disk.

    Attributes:
        model: the model to unlearn, before its first step.
        autocast: autocast context of training steps.
        stays: whether its weights stay unsharded and on their device during training.
        adapted: evaluate it with its adapters, if it has any.
    """

    model: nn.Module
    folder: Path
    autocast: Callable[[], AbstractContextManager[object]]
    autocast_dtype: str | None = None
    progress: bool = True
    fingerprint: str | None = None
    stays: bool = True
    name: str = "original model"
    adapted: bool = False

    def read(self, rows: Sequence[EncodedRow], wanted: ReferenceSpec, *, what: str) -> dict[str, TokenTable]:
        label = f"{self.name}, {what} rows" if self.progress else None
        with self._off():
            tensors = cached_tensors(
                self.folder,
                self._key(rows, wanted),
                lambda: compute_reference(self.model, rows, wanted, autocast=self.autocast, progress=label),
            )
        lengths = [counted_tokens(row) for row in rows]
        return {name: TokenTable(tensor, lengths) for name, tensor in tensors.items()}

    def has_read(self, rows: Sequence[EncodedRow], wanted: ReferenceSpec) -> bool:
        with self._off():
            return is_cached(self.folder, self._key(rows, wanted))

    def _off(self) -> AbstractContextManager[object]:
        if self.adapted or adapters_of(self.model) is None:
            return nullcontext()
        return original_model(self.model)

    def _key(self, rows: Sequence[EncodedRow], wanted: ReferenceSpec) -> dict[str, Any]:
        """Return everything that can change the values."""
        if self.fingerprint is None:
            self.fingerprint = model_fingerprint(self.model)
        # It can change outputs without changing weights.
        configuration: Any = getattr(self.model, "config", None)
        config = {} if configuration is None else json.loads(configuration.to_json_string(use_diff=False))
        return run_key(
            "reference values",
            options={"wanted": dataclasses.asdict(wanted), "autocast": self.autocast_dtype},
            model=self.fingerprint,
            rows={"read": hash_of_list(([row.input_ids, row.labels] for row in rows), hashlib.blake2b(digest_size=16))},
            inputs={
                "config": {name: value for name, value in config.items() if name not in ("_name_or_path", "use_cache")},
                # Another version or device may round otherwise.
                "torch": torch.__version__,
                "device": next(self.model.parameters()).device.type,
            },
        )


@dataclass(slots=True)
class ReferenceSource:
    wanted: Mapping[str, ReferenceSpec]
    mode: Mode | None = None
    """None if no values are needed."""
    tables: dict[str, dict[str, TokenTable]] = field(default_factory=dict)
    head: OutputHead | None = None
    second: nn.Module | None = None
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext
    places: Mapping[int, int] | None = None
    """Index of each retain row in its tables, if only the rows that the run draws were evaluated."""
    prompted: Mapping[str, Sequence[EncodedRow]] = field(default_factory=dict)
    """Forget rows behind a prompt that only the original model reads, by name."""

    def of(self, model: nn.Module, inputs: Mapping[str, Any]) -> Reference:
        if self.mode is None:
            return Reference()
        if self.mode != "cache":
            batches = {name: TokenBatch.of(inputs[name]) for name in _ROWS if name in inputs}
            for name, rows in self.prompted.items():
                tensors = collate_rows([rows[row] for row in inputs["rows"].tolist()])
                batches[name] = TokenBatch.of({key: part.to(inputs["rows"].device) for key, part in tensors.items()})
            original: AbstractContextManager[nn.Module] = original_model(model)
            if self.second is not None:
                original = nullcontext(self.second)
            with original as start, self.autocast():
                return reference_of_batch(start, batches, self.wanted)

        values: dict[str, dict[str, Tensor]] = {"logps": {}, "states": {}, "layer": {}}
        for name, tables in self.tables.items():
            drawn = inputs[_ROWS[name]].tolist()
            # A table of the drawn rows alone counts them from 0.
            if name == "retain" and self.places is not None:
                drawn = [self.places[row] for row in drawn]
            for what, table in tables.items():
                values[what][name] = table.rows(drawn).to(inputs["rows"].device)
        teachers = {name: Teacher(states, self.head) for name, states in values["states"].items()}
        return Reference(values["logps"], teachers, values["layer"])


def prepare_references(
    start: OriginalModel,
    wanted: Mapping[str, ReferenceSpec],
    sets: Mapping[str, Sequence[EncodedRow]],
    *,
    mode: str,
    drawn: Collection[int] | None = None,
    prompted: Mapping[str, Sequence[EncodedRow]],
    say: Say,
) -> ReferenceSource:
    """Choose where reference values come from, report the choice, and compute them if they are cached.

    Args:
        mode: `cache`, `model`, `adapters`, or `auto`.
        drawn: retain rows that the run will draw, if known; if they are few, only these are evaluated.
        prompted: forget rows behind a prompt that only the original model reads, by name (`prompted_rows`); `forget` replaces
            those in `sets`.
    """
    if not wanted:
        return ReferenceSource({})
    if not equals_base(start.model):
        raise ValueError("the model's adapters are already trained, so it is not the original model; merge them first.")
    places = None
    # At least half of the set is evaluated as a whole, in a table that serves other runs too.
    if drawn is not None and "retain" in wanted and 2 * len(drawn) < len(sets["retain"]):
        places = {row: place for place, row in enumerate(sorted(drawn))}
        sets = {**sets, "retain": [sets["retain"][row] for row in places]}
    sets = {**sets, **prompted}
    states = any(what.states for what in wanted.values())
    head = None
    if states:
        head = plain_head(start.model)
    chosen, why = _choose(start, wanted, sets, mode=mode, lacks_head=states and head is None)
    say(f"reference model: {why}")
    if chosen != "cache":
        second = None
        if chosen == "model":
            second = copy.deepcopy(start.model).requires_grad_(False).eval()
        return ReferenceSource(wanted, chosen, second=second, autocast=start.autocast, prompted=prompted)
    tables = {name: start.read(sets[name], what, what=name) for name, what in wanted.items()}
    if head is not None:
        # A layer that is neither trained nor sharded serves as its own reference, without a copy.
        trained = any(part is not None and part.requires_grad for part in (head.weight, head.bias))
        if trained or not start.stays:
            head = head.frozen()
    return ReferenceSource(wanted, "cache", tables, head, places=places)


def _choose(
    start: OriginalModel,
    wanted: Mapping[str, ReferenceSpec],
    sets: Mapping[str, Sequence[EncodedRow]],
    *,
    mode: str,
    lacks_head: bool,
) -> tuple[Mode, str]:
    adapted = adapters_of(start.model) is not None
    if mode == "adapters" and not adapted:
        raise ValueError("reference='adapters' needs LoRA (lora_r); use cache or model.")
    if mode == "cache" and lacks_head:
        others = "model"
        if adapted:
            others = "adapters or model"
        raise ValueError(f"reference='cache' needs a plain output layer, which this model lacks; use {others}.")
    # First the disk: for every method it took less memory and time than a second model (benchmarks/results/references-cpu.md).
    if mode in ("cache", "auto") and not lacks_head:
        size = _bytes(start, wanted, sets)
        amount = f"{size / 2**10:.1f} KiB"
        if size >= 2**20:
            amount = f"{size / 2**20:.1f} MiB"
        where = f"{amount} in {start.folder}"
        # An existing cache is always used, so that a resumed run continues as it started.
        if all(start.has_read(sets[name], what) for name, what in wanted.items()):
            return "cache", f"found in the cache, {where}"
        existing = next(parent for parent in (start.folder, *start.folder.parents) if parent.exists())
        free, memory = shutil.disk_usage(existing).free, psutil.virtual_memory().total
        if mode == "cache" or size <= min(SHARE_OF_DISK * free, SHARE_OF_MEMORY * memory):
            return "cache", f"computed once, {where}"
    if mode == "adapters" or (mode == "auto" and adapted):
        return "adapters", "the model with its adapters disabled, in every step"
    return "model", "a second, frozen copy of the original model in memory"


def _bytes(start: OriginalModel, wanted: Mapping[str, ReferenceSpec], sets: Mapping[str, Sequence[EncodedRow]]) -> int:
    width = int(text_config(start.model).hidden_size) if hasattr(start.model, "config") else 1
    item = next(start.model.parameters()).element_size()
    total = 0
    for name, what in wanted.items():
        # Log-probabilities are float32, states have the dtype of the model.
        per_token = 4 * what.logps + item * width * (what.states + (what.layer is not None))
        total += per_token * sum(counted_tokens(row) for row in sets[name])
    return total


# Tables of a run


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

    def loss_inputs(self, model: nn.Module, inputs: Mapping[str, Any]) -> LossInputs:
        rows, device = inputs["rows"], inputs["rows"].device
        return LossInputs(
            self.references.of(model, inputs),
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
    encoder: Encoder,
    refusal_ids: tuple[int, ...],
    say: Say,
) -> PrecomputedTables:
    layers = 0
    if recipe.layered:  # other methods also work with models whose layers cannot be told
        layers = len(decoder_layers(start.model))
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


def fixed_tables(recipe: Recipe, rows: UnlearningRows, start: OriginalModel, encoder: Encoder) -> dict[str, TokenTable]:
    """Return one table per fixed weighting of the recipe; a combination of two gives one table under the combined name.

    Args:
        encoder: encodes changed rows, which some weightings read.
    """
    context = PrecomputeContext(
        forget=rows.forget.rows,
        retain=None if rows.retain is None else rows.retain.rows,
        forget_text=rows.forget.examples,
        retain_text=None if rows.retain is None else rows.retain.examples,
        ref_logps=lambda: _per_row(start.read(rows.forget.rows, ReferenceSpec(logps=True), what="forget")["logps"]),
        logps_of=lambda folder: _logps_of_model(folder, rows.forget.rows, start),
        evidence=lambda: _evidence(rows.forget.examples, start, encoder),
        ref_logps_asked=lambda ask: _logps_asked(rows.forget, start, encoder, ask),
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
            combine_weights(one, other, torch.ones_like(one, dtype=torch.bool), how=recipe.combination)
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


def _logps_asked(forget: RowSet, start: OriginalModel, encoder: Encoder, ask: Callable[[str], str]) -> list[FloatArray]:
    """Compute log-probabilities of the same answer tokens under the original model, behind other questions."""
    asked = []
    for number, (row, example) in enumerate(zip(forget.rows, forget.examples, strict=True), start=1):
        first, where = row.answer_start, f"forget set, row {number}"
        if row.answer_offsets[first] is None:
            raise ValueError(f"{where}: this forget loss counts the tokens of the question, which cannot be replaced.")
        if not example.messages:  # a text, of which there is no other reading
            asked.append(row)
            continue
        last = dataclasses.replace(example.messages[-1], content=ask(example.question))
        changed = dataclasses.replace(example, messages=(*example.messages[:-1], last), forget_spans=None)
        # The answer keeps its tokens, so that the values stand beside those of `ref_logps`.
        before = encoder.encode(changed, where=where).prompt_ids
        ids, labels = (*before, *row.input_ids[first:]), (*[IGNORE_INDEX] * len(before), *row.labels[first:])
        offsets = (*[None] * len(before), *row.answer_offsets[first:])
        asked.append(dataclasses.replace(row, input_ids=ids, labels=labels, token_labels=None, answer_offsets=offsets))
    return _per_row(start.read(asked, ReferenceSpec(logps=True), what="forget")["logps"])


def _logps_of_model(name: str, rows: Sequence[EncodedRow], start: OriginalModel) -> list[FloatArray]:
    """Compute log-probabilities of each row's answer tokens under another model, which is loaded and freed."""
    model = load_model(name).to(next(start.model.parameters()).device)
    vocabulary, own = (int(text_config(either).vocab_size) for either in (start.model, model))
    largest = max(max(row.input_ids) for row in rows)
    if vocabulary != own or largest >= own:
        raise ValueError(
            f"{name} has a vocabulary of {own} tokens, the model to unlearn {vocabulary}; auxiliary models must use "
            "the same tokenizer."
        )
    # An auxiliary model is read with its adapters, if it has some; the original one without those of the run.
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
