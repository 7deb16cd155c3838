"""Values of the frozen reference model for the rows of a run.

They are computed once and cached on disk, or computed in every step by the model with its adapters disabled or by a
second, frozen model. Values that a recipe does not need are not computed.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from torch import Tensor, nn

from atwu._cache import cached_tensors, hash_of_list, is_cached, run_key
from atwu.data.encode import EncodedRow
from atwu.data.pairing import collate_rows
from atwu.modeling.adapters import adapters_of, equals_base, original_model
from atwu.modeling.batches import TokenBatch
from atwu.modeling.distribution_distance import Teacher
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.forward import LayoutChoice
from atwu.modeling.head import OutputHead
from atwu.modeling.layers import text_config
from atwu.modeling.reference import (
    Reference,
    ReferenceSpec,
    TokenTable,
    compute_reference,
    counted_tokens,
    plain_head,
    reference_of_batch,
)
from atwu.training.progress import Say

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

    def of(self, model: nn.Module, inputs: Mapping[str, Any], *, layout: LayoutChoice = "auto") -> Reference:
        if self.mode is None:
            return Reference()
        if self.mode != "cache":
            batches = {name: TokenBatch.of(inputs[name]) for name in _ROWS if name in inputs}
            for name, rows in self.prompted.items():
                tensors = collate_rows([rows[row] for row in inputs["rows"].tolist()])
                batches[name] = TokenBatch.of({key: part.to(inputs["rows"].device) for key, part in tensors.items()})
            original = original_model(model) if self.second is None else nullcontext(self.second)
            with original as start, self.autocast():
                return reference_of_batch(start, batches, self.wanted, layout=layout)

        values: dict[str, dict[str, Tensor]] = {"logps": {}, "states": {}, "layer": {}}
        for name, tables in self.tables.items():
            drawn = inputs[_ROWS[name]].tolist()
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
    if drawn is not None and "retain" in wanted and 2 * len(drawn) < len(sets["retain"]):
        places = {row: place for place, row in enumerate(sorted(drawn))}
        sets = {**sets, "retain": [sets["retain"][row] for row in places]}
    sets = {**sets, **prompted}
    states = any(what.states for what in wanted.values())
    head = plain_head(start.model) if states else None
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
        raise ValueError(
            "reference='cache' needs a plain output layer, which this model lacks; use "
            f"{'adapters or model' if adapted else 'model'}."
        )
    if mode in ("cache", "auto") and not lacks_head:
        size = _bytes(start, wanted, sets)
        amount = f"{size / 2**10:.1f} KiB"
        if size >= 2**20:
            amount = f"{size / 2**20:.1f} MiB"
        where = f"{amount} in {start.folder}"
        # An existing cache is always used, so that a resumed run continues as it started.
        if all(start.has_read(sets[name], what) for name, what in wanted.items()):
            return "cache", f"found in the cache, {where}"
        if mode == "cache" or size <= min(
            SHARE_OF_DISK * _free(start.folder), SHARE_OF_MEMORY * psutil.virtual_memory().total
        ):
            return "cache", f"computed once, {where}"
    if mode == "adapters" or (mode == "auto" and adapted):
        return "adapters", "the model with its adapters disabled, in every step"
    return "model", "a second, frozen copy of the original model in memory"


def _bytes(start: OriginalModel, wanted: Mapping[str, ReferenceSpec], sets: Mapping[str, Sequence[EncodedRow]]) -> int:
    width = int(text_config(start.model).hidden_size) if hasattr(start.model, "config") else 1
    item = next(start.model.parameters()).element_size()
    total = 0
    for name, what in wanted.items():
        per_token = 4 * what.logps + item * width * (what.states + (what.layer is not None))
        total += per_token * sum(counted_tokens(row) for row in sets[name])
    return total


def _free(folder: Path) -> int:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return shutil.disk_usage(existing).free
