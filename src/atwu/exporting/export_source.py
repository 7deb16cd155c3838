"""What is exported: the folder of a run (or any model), its rows, and its model as training left it and as plain weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from atwu._manifest import RECORD_NAME
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.modeling.adapters import adapters_of, unmergeable
from atwu.modeling.load import (
    add_adapter,
    base_of,
    base_revision,
    check_model_name,
    is_adapter,
    load_config,
    load_model,
    load_tokenizer,
    stored_bits,
)
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.modeling.quantization import dequantize_model, quantize_model


@dataclass(frozen=True, slots=True)
class Source:
    """A model folder, with the record of the run that left it."""

    path: Path
    loading: ModelLoadArgs
    record: Mapping[str, Any]
    """`run.json`; empty where no run of this package left the folder."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Settings of the run."""
        found: Mapping[str, Any] = self.record.get("config", {})
        return found

    @property
    def original_model(self) -> str | None:
        """What the run started from."""
        name: str | None = self.record.get("original_model", {}).get("model")
        return name

    @property
    def base_bits(self) -> str | None:
        """`4bit` or `8bit` for adapters that were trained on a rounded base, else None."""
        if not is_adapter(str(self.path)):
            return None
        bits: str | None = self.config.get("quantize")
        return bits or stored_bits(base_of(str(self.path), base=self.loading.base))

    def open(self, device: torch.device) -> tuple[Any, Any]:
        """Model and tokenizer as training left them: adapters on a base that was rounded stay beside it."""
        bits, name = self.base_bits, str(self.path)
        if bits is None or stored_bits(base_of(name, base=self.loading.base)) is not None:
            return open_model(name, self.loading, device=device)
        tokenizer = load_tokenizer(name, **self.loading.load_kwargs)
        return add_adapter(self._rounded_base(bits, device), name, merge=False), tokenizer

    def merged(self, model: Any, device: torch.device) -> Any:
        """The model as plain weights with its adapters added to them; the given one (`open`) is used up.

        Raises:
            ValueError: adding the adapters would give another model.
        """
        bits = self.base_bits
        if bits is not None:
            base = self._rounded_base(bits, device)
            return add_adapter(dequantize_model(base), str(self.path))
        adapted = adapters_of(model)
        if adapted is not None:
            raise ValueError(
                f"the adapters of {self.path} cannot be merged: {unmergeable(adapted)}. Use --format adapter."
            )
        return dequantize_model(model)

    def rows(self, name: str, given: str | None) -> Sequence[Example]:
        """The rows of a set: those that are given, else those of the run.

        Raises:
            FileNotFoundError: they are not where they were.
            ValueError: none are known, or they have changed since.
        """
        if given is not None:
            return load_rows(given).rows
        known = self.record.get("data", {}).get(name)
        if known is None or known["source"] is None:
            raise ValueError(f"{self.path} does not say which {name} rows it belongs to; name them with --{name} FILE.")
        try:
            rows = load_rows(known["source"]).rows
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"the run's {name} rows, {known['source']}, are not found from here; name them with --{name} FILE."
            ) from error
        labelled = self.config.get("forget_words") is not None  # the record's rows have labels that the file has not
        if len(rows) != known["rows"] or (not labelled and fingerprint(rows) != known["fingerprint"]):
            raise ValueError(f"{known['source']} no longer holds the run's {name} rows; name them with --{name} FILE.")
        return rows

    def look(self) -> tuple[Any, Any]:
        """Configuration and tokenizer, without weights."""
        name = str(self.path)
        return load_config(name, **self.loading.load_kwargs), load_tokenizer(name, **self.loading.load_kwargs)

    def _rounded_base(self, bits: str, device: torch.device) -> Any:
        """The base model of the adapters as they were trained on it."""
        name, given = str(self.path), self.loading
        base = base_of(name, base=given.base)
        model = load_model(
            base,
            dtype=given.dtype,
            trust_remote_code=given.trust_remote_code,
            revision=base_revision(name, given.revision, given.base),
        ).to(device)
        return model if stored_bits(base) is not None else quantize_model(model, bits)


def read_source(path: str | Path, loading: ModelLoadArgs) -> Source:
    """Look at a run's folder, without its weights.

    Raises:
        FileNotFoundError: no folder, one without a model, or a run that is not finished.
        ValueError, ImportError: as `check_model_name`.
    """
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.incomplete")
        hint = f" The run is not finished ({unfinished.name}); its command continues it." if unfinished.is_dir() else ""
        raise FileNotFoundError(f"{path} not found: export takes the folder of a run or of a model.{hint}")
    check_model_name(str(folder), base=loading.base)
    file = folder / RECORD_NAME
    return Source(folder, loading, json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {})
