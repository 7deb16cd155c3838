"""Tables of numbers that a run looks up by row: the starting model's, and token weights fixed before training.

The starting model's numbers are read once and cached on disk, or taken in every step from the model with its adapters off or
from a second, frozen model. What a recipe does not need is neither computed nor loaded.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from atwu._cache import cache_folder, cached_tensors, short_hash
from atwu.data.encode import EncodedRow
from atwu.modeling.adapters import adapters_of, starting_model
from atwu.modeling.batches import TokenBatch
from atwu.modeling.compare import Teacher
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.forward import LayoutChoice
from atwu.modeling.head import OutputHead
from atwu.modeling.load import load_model
from atwu.modeling.reference import (
    Reference,
    TokenTable,
    Wanted,
    counted_tokens,
    live_reference,
    plain_head,
    read_rows,
)

Mode = Literal["cache", "model", "adapters"]
Say = Callable[[str], None]
_SETS = ("forget", "retain", "alternate")
SHARE_OF_DISK = 0.25
"""Largest share of the free disk space that an automatically chosen cache may take."""


@dataclass(slots=True)
class StartingModel:
    """Reads rows with the starting model, through a cache on disk.

    Attributes:
        model: the model about to be unlearned, before its first step.
        folder: of the cache.
        autocast: the context that training steps run in.
        progress: show progress bars.
    """

    model: nn.Module
    folder: Path
    autocast: Callable[[], AbstractContextManager[object]]
    autocast_dtype: str | None = None
    progress: bool = True
    fingerprint: str | None = None

    def read(self, rows: Sequence[EncodedRow], wanted: Wanted, *, what: str) -> dict[str, TokenTable]:
        """Tables of what is wanted for a set of rows."""
        with starting_model(self.model) if adapters_of(self.model) is not None else nullcontext():
            if self.fingerprint is None:
                self.fingerprint = model_fingerprint(self.model)
            return read_cached(
                self.model,
                rows,
                wanted,
                folder=self.folder,
                fingerprint=self.fingerprint,
                autocast=self.autocast,
                autocast_dtype=self.autocast_dtype,
                progress=f"starting model, {what} rows" if self.progress else None,
            )


def read_cached(
    model: nn.Module,
    rows: Sequence[EncodedRow],
    wanted: Wanted,
    *,
    folder: Path,
    fingerprint: str,
    autocast: Callable[[], AbstractContextManager[object]],
    autocast_dtype: str | None,
    progress: str | None,
) -> dict[str, TokenTable]:
    """`read_rows` through the cache in `folder`; the key is everything that can change a number."""
    key = {
        "format": 1,
        "model": fingerprint,
        "rows": short_hash([[row.input_ids, row.labels] for row in rows]),
        "wanted": [wanted.logps, wanted.states, wanted.layer],
        "autocast": autocast_dtype,
        "torch": torch.__version__,
        "device": next(model.parameters()).device.type,
    }
    tensors = cached_tensors(folder, key, lambda: read_rows(model, rows, wanted, autocast=autocast, progress=progress))
    lengths = [counted_tokens(row) for row in rows]
    return {name: TokenTable(tensor, lengths) for name, tensor in tensors.items()}


@dataclass(slots=True)
class References:
    """The starting model's numbers for the rows of a run."""

    wanted: Mapping[str, Wanted]
    mode: Mode | None = None
    """None when nothing is needed."""
    tables: dict[str, dict[str, TokenTable]] = field(default_factory=dict)
    head: OutputHead | None = None
    second: nn.Module | None = None

    def of(
        self, model: nn.Module, inputs: Mapping[str, Any], device: torch.device, *, layout: LayoutChoice = "auto"
    ) -> Reference:
        """The reference of one micro-batch."""
        if self.mode is None:
            return Reference()
        if self.mode != "cache":
            batches = {name: TokenBatch.of(inputs[name]) for name in _SETS if name in inputs}
            if self.mode == "adapters":
                with starting_model(model):
                    return live_reference(model, batches, self.wanted, layout=layout)
            assert self.second is not None
            return live_reference(self.second, batches, self.wanted, layout=layout)
        indices = {
            name: inputs.get(key) for name, key in zip(_SETS, ("rows", "retain_rows", "alternate_rows"), strict=True)
        }

        def look_up(name: str, what: str) -> Tensor | None:
            table = self.tables.get(name, {}).get(what)
            return None if table is None else table.rows(indices[name]).to(device)  # type: ignore[arg-type]

        def teacher(name: str) -> Teacher | None:
            states = look_up(name, "states")
            return None if states is None else Teacher(states, self.head)

        return Reference(
            look_up("forget", "logps"),
            look_up("alternate", "logps"),
            teacher("forget"),
            teacher("retain"),
            look_up("retain", "layer"),
        )


def prepare_references(
    start: StartingModel, wanted: Mapping[str, Wanted], sets: Mapping[str, Sequence[EncodedRow]], *, mode: str, say: Say
) -> References:
    """Decide where the starting model's numbers come from, say so, and read them if they are to be cached.

    Args:
        start: the starting model.
        wanted: what is wanted of each set.
        sets: the rows of each set that is wanted.
        mode: `cache`, `model`, `adapters`, or `auto`.
        say: receives one line of plain text.

    Raises:
        ValueError: a mode that this model does not allow.
    """
    wanted = {name: what for name, what in wanted.items() if not what.nothing}
    if not wanted:
        return References({})
    states = any(what.states for what in wanted.values())
    head = plain_head(start.model) if states else None
    chosen, why = _choose(start, wanted, sets, mode=mode, lacks_head=states and head is None)
    say(f"starting model's numbers: {why}")
    if chosen == "adapters":
        return References(wanted, "adapters")
    if chosen == "model":
        second = copy.deepcopy(start.model)
        second.requires_grad_(False)
        return References(wanted, "model", second=second.eval())
    tables = {name: start.read(sets[name], what, what=name) for name, what in wanted.items()}
    # A layer that is not trained is its own copy.
    frozen = head.frozen() if head is not None and head.weight.requires_grad else head
    return References(wanted, "cache", tables, frozen)


def _choose(
    start: StartingModel,
    wanted: Mapping[str, Wanted],
    sets: Mapping[str, Sequence[EncodedRow]],
    *,
    mode: str,
    lacks_head: bool,
) -> tuple[Mode, str]:
    adapted = adapters_of(start.model) is not None
    if mode == "adapters" and not adapted:
        raise ValueError("reference='adapters' needs a run with LoRA (lora_r); use cache or model.")
    if mode == "cache" and lacks_head:
        raise ValueError(
            "reference='cache' needs the plain output layer of the model, which this one lacks; use "
            + ("adapters or model." if adapted else "model.")
        )
    size, free = _bytes(start, wanted, sets), _free(start.folder)
    if mode == "cache" or (mode == "auto" and not lacks_head and size <= SHARE_OF_DISK * free):
        return "cache", f"read once, {size / 2**20:.1f} MiB in {start.folder}"
    if mode == "adapters" or (mode == "auto" and adapted):
        return "adapters", "the model with its adapters off, in every step"
    return "model", "a second, frozen model in memory"


def _bytes(start: StartingModel, wanted: Mapping[str, Wanted], sets: Mapping[str, Sequence[EncodedRow]]) -> int:
    width = int(start.model.config.get_text_config().hidden_size) if hasattr(start.model, "config") else 1  # type: ignore[union-attr, operator]
    item = next(start.model.parameters()).element_size()
    total = 0
    for name, what in wanted.items():
        per_token = 4 * what.logps + item * width * (what.states + (what.layer is not None))
        total += per_token * sum(counted_tokens(row) for row in sets[name])
    return total


def _free(folder: Path) -> int:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return shutil.disk_usage(existing).free


def auxiliary_logps(
    name: str, rows: Sequence[EncodedRow], device: torch.device, *, folder: Path, progress: bool
) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """Log-probabilities of each row's counted tokens under another model, which is loaded and dropped."""
    model = load_model(name).to(device)
    tables = read_cached(
        model,
        rows,
        Wanted(logps=True),
        folder=folder,
        fingerprint=model_fingerprint(model),
        autocast=nullcontext,
        autocast_dtype=None,
        progress=f"{Path(name).name}, forget rows" if progress else None,
    )
    return per_row(tables["logps"])


def per_row(table: TokenTable) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """The rows of a table of one number per token."""
    return [table.rows([index]).double().numpy() for index in range(len(table))]


def reference_folder(config_folder: str | None) -> Path:
    """Where reference tables are cached."""
    return (Path(config_folder) if config_folder else cache_folder()) / "references"
