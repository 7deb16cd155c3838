"""The formats that a model is written in: what each can hold, and how it is written."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._files import write_json
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.exporting.export_source import Source
from atwu.exporting.llama_cpp import check_llama_cpp, convert
from atwu.modeling.gguf_write import GGUF_TYPES, check_gguf, read_back_tokenizer, write_gguf
from atwu.modeling.load import ADAPTER_CONFIG, ADAPTER_WEIGHTS, is_adapter
from atwu.modeling.quantization import BIT_WIDTHS, check_quantization, plain_weights, quantize_model, relative_change

EXPORT_FORMATS = ("safetensors", "adapter", *BIT_WIDTHS, "gguf")


@dataclass(frozen=True, slots=True)
class Format:
    """What a model is written as."""

    name: str
    """One of `EXPORT_FORMATS`."""
    kind: str = "Q8_0"
    """Storage of a GGUF file's matrices."""
    llama_cpp: Path | None = None
    """Checkout of llama.cpp that writes the GGUF file; None writes it here."""

    def __post_init__(self) -> None:
        if self.name not in EXPORT_FORMATS:
            raise ValueError(f"format must be one of {', '.join(EXPORT_FORMATS)}, got {self.name!r}.")
        if self.llama_cpp is None and self.kind not in GGUF_TYPES:
            raise ValueError(
                f"gguf_type must be one of {', '.join(GGUF_TYPES)} (all others take --llama-cpp PATH), got {self.kind!r}."
            )

    @property
    def said(self) -> str:
        """For people to read."""
        return f"gguf {self.kind}" if self.name == "gguf" else self.name

    def check(self, source: Source, config: Any) -> None:
        """Check that the source can be written so, as far as can be told without weights.

        Raises:
            ValueError, FileNotFoundError, ImportError: see the message.
        """
        if self.name == "adapter" and not is_adapter(str(source.path)):
            raise ValueError(
                f"{source.path} holds whole weights and no adapters (unlearn --lora-r 16 --save-adapter leaves some); "
                "use --format safetensors."
            )
        if self.name in BIT_WIDTHS:
            check_quantization(self.name)
        if self.name == "gguf" and self.llama_cpp is not None:
            check_llama_cpp(self.llama_cpp, self.kind)
        elif self.name == "gguf":
            try:
                check_gguf(config)
            except ValueError as error:
                raise ValueError(f"{source.path} cannot become GGUF: {error}") from error

    def check_tokens(self, source: Source, tokenizer: Any, config: Any, rows: Sequence[Example]) -> None:
        """Check that texts become the same tokens after a GGUF file was read; needs no weights.

        Raises:
            ValueError: they do not.
        """
        if self.name != "gguf" or self.llama_cpp is not None:
            return
        try:
            same_tokens(tokenizer, read_back_tokenizer(tokenizer, config), rows)
        except ValueError as error:
            raise ValueError(f"{source.path} cannot become GGUF: {error}") from error

    def write(self, source: Source, model: Any, tokenizer: Any, folder: Path) -> Written:
        """Write the artefact into an empty folder; `model` has plain weights (`Source.merged`), which adapters do without."""
        name = folder
        if self.name == "gguf":
            name = folder / f"{source.path.name}-{self.kind}.gguf"
            return Written(name, self._write_gguf(source, model, tokenizer, name))
        tokenizer.save_pretrained(folder)
        if self.name == "adapter":
            _copy_adapter(source, folder)
            return Written(name, 0.0)
        if self.name == "safetensors":
            model.save_pretrained(folder)
            return Written(name, 0.0, model)
        stored = quantize_model(model, self.name)
        stored.save_pretrained(folder)
        return Written(name, relative_change(model, plain_weights(stored)), stored)

    def _write_gguf(self, source: Source, model: Any, tokenizer: Any, path: Path) -> float | None:
        if self.llama_cpp is None:
            return relative_change(model, write_gguf(model, tokenizer, path, self.kind, name=source.path.name))
        with tempfile.TemporaryDirectory(prefix="atwu-", dir=path.parent) as saved:
            model.save_pretrained(saved)
            tokenizer.save_pretrained(saved)
            convert(self.llama_cpp, Path(saved), path, self.kind)
        return None


@dataclass(frozen=True, slots=True)
class Written:
    """What was written."""

    path: Path
    """What `--model` takes: the folder, or a file in it."""
    moved: float | None
    """How far rounding moved the matrices, relative to their size; None if somebody else rounded them."""
    stored: Any = None
    """The model as it was written, to compare with what is read."""


def same_tokens(tokenizer: Any, other: Any, rows: Sequence[Example]) -> None:
    """Check that two tokenizers cut rows into the same tokens.

    Raises:
        ValueError: they do not; names the first row.
    """
    one, two = (Encoder(each).encode_rows(rows, what="rows").rows for each in (tokenizer, other))
    different = [place for place, (left, right) in enumerate(zip(one, two, strict=True)) if left != right]
    if different:
        row = rows[different[0]]
        raise ValueError(
            f"{len(different)} of {len(rows)} rows would become other tokens when transformers reads the file, such as "
            f"{(row.question or row.answer)[:60]!r}."
        )


def _copy_adapter(source: Source, folder: Path) -> None:
    """Adapters as they are; with a base given, they name that one."""
    shutil.copyfile(source.path / ADAPTER_WEIGHTS, folder / ADAPTER_WEIGHTS)
    settings = json.loads((source.path / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    if source.loading.base is not None:
        base = Path(source.loading.base)
        settings["base_model_name_or_path"] = str(base.absolute()) if base.is_dir() else source.loading.base
    write_json(folder / ADAPTER_CONFIG, settings)
