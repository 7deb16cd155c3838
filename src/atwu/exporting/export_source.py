"""The source of an export: folder of a run or model, its rows, and its model with and without adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from atwu._file_reading import read_object
from atwu._manifest import RECORD_NAME
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.modeling.adapters import adapters_of, unmergeable
from atwu.modeling.load import (
    add_adapter,
    base_of,
    base_revision,
    check_model_name,
    is_adapter,
    load_model,
    load_tokenizer,
    stored_bits,
)
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.modeling.quantization import dequantize_model, quantize_model
from atwu.request.request_folder import RequestFolder, RowsUsed
from atwu.request.row_facts import with_facts


@dataclass(frozen=True, slots=True)
class Source:
    """A model folder with the record of its run."""

    path: Path
    loading: ModelLoadArgs
    record: Mapping[str, Any]
    """`run.json`; empty for a model without a run of this package."""

    @property
    def config(self) -> Mapping[str, Any]:
        config: Mapping[str, Any] = self.record.get("config", {})
        return config

    @property
    def base_bits(self) -> str | None:
        """`4bit` or `8bit` for adapters trained on a quantized base, else None."""
        if not is_adapter(str(self.path)):
            return None
        bits: str | None = self.config.get("quantize")
        return bits or stored_bits(base_of(str(self.path), base=self.loading.base))

    def open(self, device: torch.device) -> tuple[Any, Any]:
        """Load model and tokenizer as after training; adapters on a quantized base are not merged."""
        bits, name = self.base_bits, str(self.path)
        if bits is None or stored_bits(base_of(name, base=self.loading.base)) is not None:
            return open_model(name, self.loading, device=device)
        tokenizer = load_tokenizer(name, **self.loading.tokenizer_kwargs)
        return add_adapter(self._quantized_base(bits, device), name, merge=False), tokenizer

    def merge_adapters(self, model: Any, device: torch.device) -> Any:
        """Merge the adapters into plain weights; the given model (`open`) is consumed."""
        bits = self.base_bits
        if bits is not None:
            # Loaded anew, since adapters on quantized weights cannot be merged, and rounded as in training: the adapters were
            # trained on the rounded weights.
            base = self._quantized_base(bits, device)
            return add_adapter(dequantize_model(base), str(self.path))
        adapted = adapters_of(model)
        if adapted is not None:
            raise ValueError(
                f"the adapters of {self.path} cannot be merged: {unmergeable(adapted)}. Use --format adapter."
            )
        return dequantize_model(model)

    def rows(self, name: str, source: str | None) -> Sequence[Example]:
        """Return the rows of a set: the given ones, else those of the run."""
        if source is not None:
            return load_rows(source).rows
        files = RequestFolder(self.path)
        if name == RETAIN:  # a request builds its own retain set and keeps it
            kept = files.rows(RETAIN)
            if kept is not None:
                return kept
        known = self._recorded_rows(name)
        if known is None:
            raise ValueError(f"{self.path} has no record of its {name} rows; give them with --{name} FILE.")
        try:
            rows = load_rows(known.source).rows
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"the run's {name} rows, {known.source}, were not found; give them with --{name} FILE."
            ) from error
        labelled = self.config.get("forget_words") is not None  # only the recorded rows have labels
        if len(rows) != known.count or (not labelled and fingerprint(rows) != known.fingerprint):
            raise ValueError(f"{known.source} no longer has the {name} rows of the run; give them with --{name} FILE.")
        if name == FORGET and files.key() is not None:
            return with_facts(rows, files.request().facts)
        return rows

    def _recorded_rows(self, name: str) -> RowsUsed | None:
        """Return the rows of a set as recorded: for a request as given, without their forms and further rows, which `run.json`
        counts."""
        files = RequestFolder(self.path)
        if files.key() is None:
            known = self.record.get("data", {}).get(name)
            if known is None or known["source"] is None:  # rows that Python code passed have no source
                return None
            return RowsUsed(known["source"], known["rows"], known["fingerprint"])
        request = files.request()
        if name == FORGET:
            return replace(request.forget, source=files.forget_source(request.forget.source))
        return request.retain

    def _quantized_base(self, bits: str, device: torch.device) -> Any:
        """Load the base model of the adapters, quantized as in training."""
        name, loading = str(self.path), self.loading
        base = base_of(name, base=loading.base)
        model = load_model(
            base,
            dtype=loading.dtype,
            trust_remote_code=loading.trust_remote_code,
            revision=base_revision(name, loading.revision, loading.base),
        ).to(device)
        if stored_bits(base) is not None:
            return model
        return quantize_model(model, bits)


def read_source(path: str | Path, loading: ModelLoadArgs) -> Source:
    """Read the folder of a run, without its weights."""
    folder = Path(path).expanduser().absolute()
    if folder.is_file():
        raise NotADirectoryError(f"{path} is a file; give the folder of a run or of a model.")
    if not folder.is_dir():
        hint = ""
        # A run has its name only once it is finished.
        unfinished = folder.with_name(f"{folder.name}.incomplete")
        if unfinished.is_dir():
            hint = f" The run is not finished ({unfinished.name}); repeat its command to resume it."
        raise FileNotFoundError(f"{path} not found: atwu export needs the folder of a run or of a model.{hint}")
    own_revision = None if is_adapter(str(folder)) else loading.revision  # an adapter's is that of its base
    check_model_name(str(folder), base=loading.base, revision=own_revision)
    # A model that atwu did not train has no record, and can be exported all the same.
    record: dict[str, Any] = {}
    if (folder / RECORD_NAME).is_file():
        record = read_object(folder / RECORD_NAME)
    return Source(folder, loading, record)
