"""Check files of model folders before a library reads them, and name the file when a library fails.

Libraries raise what their parsers raise (`SafetensorError`, `KeyError`, a bare `Exception` of tokenizers), mostly without the
file, read damaged files of settings as if they were not there, or never end.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from atwu._file_reading import file_text, read_object
from atwu.errors import AtwuError, ModelFileError

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
SOURCE_NAME = "source.json"
"""File in a folder converted from a GGUF file that records its source."""

_COUNTS = re.compile(r"num_hidden_layers|num_layers|n_layers?|num_attention_heads|num_key_value_heads|n_heads?")
_MOST_PARTS = 10_000
"""Largest number of layers or heads; for 10^9 layers, transformers would create modules for hours."""
# Names in most models, in MPT and XLNet, and in GPT-2 and GPT-J.
_WIDTHS = ("hidden_size", "d_model", "n_embd")
_SIZES = ("intermediate_size", "head_dim", "vocab_size")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_EPSILON = re.compile(r"\w*norm\w*_eps(ilon)?")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_INTEGER = re.compile(r"[IU]\d+|BOOL")
_LONGEST = 300


@contextlib.contextmanager
def explain_damage(source: str | Path, file: str) -> Iterator[None]:
    """Turn any error of a library that reads a folder into one that names the file."""
    import torch
    from safetensors import SafetensorError

    try:
        yield
    # These say what is wrong themselves, and it is no file.
    except (AtwuError, ImportError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        folder = Path(source)
        if not folder.is_dir() and isinstance(error, OSError):
            raise OSError(f"{source} is not a folder, and cannot be loaded from the Hub: {_one_line(error)}") from error
        if file == TOKENIZER:
            file, error = _tokenizer_damage(folder, error)
        elif file == CONFIG and isinstance(error, SafetensorError):
            file = WEIGHTS
        reason = _one_line(error).rstrip(".") or type(error).__name__
        if isinstance(error, KeyError):
            reason = _missing_key(folder, error, reason)
        raise ModelFileError(f"{folder / file} cannot be loaded: {reason}. Restore or correct the file.") from error


def check_files(folder: str | Path) -> None:
    """Check settings, chat template and the headers of weights of a model folder; other names are not checked."""
    from safetensors import safe_open

    folder = Path(folder)
    if not folder.is_dir():
        return
    for path in sorted((*folder.glob("*.safetensors"), *folder.glob("tokenizer.*"))):
        _check_no_pointer(path)
    for path in sorted(folder.glob("*.safetensors")):
        with explain_damage(folder, path.name), safe_open(path, framework="pt") as file:
            types = {name: file.get_slice(name).get_dtype() for name in file.offset_keys() if name.endswith(".weight")}
        # Without the configuration of their quantization, integers would be loaded as if they were the weights.
        integers = next((name for name, kind in types.items() if _INTEGER.fullmatch(kind)), None)
        if integers is not None and not _settings(folder / CONFIG).get("quantization_config"):
            raise ModelFileError(
                f"{path}: {integers} has the integer type {types[integers]}, although {CONFIG} has no quantization_config; "
                "restore the files, or use the model before it was quantized."
            )
    for name in (CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG, WEIGHTS_INDEX):
        path = folder / name
        if not path.exists():
            continue
        settings = read_object(path)
        if name == CONFIG:
            _check_sizes(settings, path)
        elif name == WEIGHTS_INDEX:
            _check_index(settings, path)
    template = folder / CHAT_TEMPLATE
    if template.exists() and not file_text(template).strip():
        raise ModelFileError(f"{template} is empty; restore it, or remove it for prompts without a chat template.")


def _check_no_pointer(path: Path) -> None:
    """Check that a file is no pointer of Git LFS, which a clone without it leaves in place of large files."""
    with path.open("rb") as file:
        start = file.read(len(_LFS_POINTER))
    if start == _LFS_POINTER:
        raise ModelFileError(
            f"{path} is a pointer of Git LFS, not the file itself; run `git lfs pull` in its folder, or download the model "
            "from the Hub."
        )


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    with explain_damage(path.parent, path.name):
        tensors = load_file(path)
    for name, tensor in tensors.items():
        if name.endswith(".weight") and not tensor.is_floating_point():
            raise ModelFileError(f"{path}: {name} has the integer type {tensor.dtype}; restore the file.")
        if not tensor.isfinite().all():
            raise ModelFileError(f"{path}: {name} has values that are NaN or infinite; restore the file.")
    return tensors


def _settings(path: Path) -> dict[str, Any]:
    if path.is_file():
        return read_object(path)
    return {}


def _check_sizes(config: Mapping[str, Any], path: Path) -> None:
    """Check counts, and sizes against those of the weight files, which hold matrices of each size times the width."""
    settings = dict(config)
    inner = config.get("text_config")  # of a model that also reads images
    if isinstance(inner, dict):
        settings = {**inner, **config}
    numbers = {name: value for name, value in settings.items() if type(value) is int}
    _check_attention(settings, path)
    for name, value in settings.items():  # a negative one changes every result
        if _EPSILON.fullmatch(name) and isinstance(value, int | float) and not 0 <= value <= 1:
            raise ModelFileError(f"{path}: {name} is {value!r:.60}, expected 0 to 1; restore the file.")
    width = next((name for name in _WIDTHS if name in numbers), None)
    stored = 2 * sum(file.stat().st_size for file in path.parent.glob("*.safetensors"))  # 4-bit weights: two per byte
    for name, value in numbers.items():
        if _COUNTS.fullmatch(name) and not 1 <= value <= _MOST_PARTS:
            raise ModelFileError(f"{path}: {name} is {value}, expected 1 to {_MOST_PARTS}; restore the file.")
        if name not in (*_WIDTHS, *_SIZES):
            continue
        least = 1
        if name == "intermediate_size":
            least = 0
        if value < least:
            raise ModelFileError(f"{path}: {name} is {value}, expected at least {least}; restore the file.")
        if width is not None and stored and value * numbers[width] > stored:
            raise ModelFileError(
                f"{path}: {name} x {width} is {value} x {numbers[width]}, more than the {stored // 2} bytes of the weight "
                "files hold; restore the files."
            )


def _check_attention(settings: Mapping[str, Any], path: Path) -> None:
    """Check numbers with which a model is loaded, and fails at its first row."""
    kinds = settings.get("layer_types")
    slides = isinstance(kinds, list) and "sliding_attention" in kinds
    most = {"query_pre_attn_scalar": math.inf}
    if settings.get("use_sliding_window", True):
        most["sliding_window"] = math.inf
    experts = [settings[name] for name in _EXPERTS if type(settings.get(name)) is int and settings[name] > 0]
    if experts:
        most["num_experts_per_tok"] = experts[0]
    for name, limit in most.items():
        value = settings.get(name, 1)
        needed = value is None and name == "sliding_window" and slides
        if needed or (isinstance(value, int | float) and not 1 <= value <= limit):
            allowed = "at least 1"
            if limit < math.inf:
                allowed = f"1 to {limit}"
            raise ModelFileError(f"{path}: {name} is {value!r:.60}, expected {allowed}; restore the file.")


def _check_index(index: Mapping[str, Any], path: Path) -> None:
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise ModelFileError(f"{path}: weight_map must map names of tensors to files; restore the file.")
    for name in sorted(set(shards.values())):
        if PurePosixPath(name).name != name:
            raise ModelFileError(
                f"{path}: weight_map names {name!r}, which is not a file of the folder; restore the index."
            )
        if not (path.parent / name).is_file():
            raise ModelFileError(f"{path}: weight_map names {name}, which is missing; restore the file.")


def _tokenizer_damage(folder: Path, error: Exception) -> tuple[str, Exception]:
    """Return which file of a tokenizer is damaged, and the reason, as the library that reads only this file says it."""
    from tokenizers import Tokenizer

    if not (folder / TOKENIZER).is_file():
        return TOKENIZER, FileNotFoundError("there is no such file, and none of another tokenizer")
    try:
        Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as damage:  # the class that tokenizers raises
        return TOKENIZER, damage
    return f"{TOKENIZER_CONFIG} (or {TOKENIZER})", error


def _missing_key(folder: Path, error: KeyError, key: str) -> str:
    """Say what a library did not find: the value of a setting in a table of its own, or a key."""
    for name, value in _settings(folder / CONFIG).items():
        parts = {name: value}
        if isinstance(value, dict):
            parts |= {f"{name}.{inner}": inner_value for inner, inner_value in value.items()}
        for part, part_value in parts.items():
            if part_value in error.args:
                return f"{part} is {key}, which is unknown"
    return f"{key} is missing"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST]
