"""Check model folders before and after a library reads them, and name the file when a library fails.

Libraries raise what their parsers raise (`SafetensorError`, `KeyError`, a bare `Exception` of tokenizers), mostly without the
file. transformers reads damaged settings as if they were not there and fills gaps of a checkpoint with random numbers, and
neither it nor safetensors looks at values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._file_reading import read_object
from atwu.errors import AtwuError, ModelFileError

if TYPE_CHECKING:
    from torch import Tensor, nn

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
WEIGHTS = "model.safetensors"


@contextlib.contextmanager
def explain_damage(source: str | Path, file: str) -> Iterator[None]:
    """Turn any error of a library that reads a folder into one that names the file.

    Args:
        source: folder or Hub name.
        file: the file that is read.
    """
    import torch
    from safetensors import SafetensorError

    try:
        yield
    except (AtwuError, ImportError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        folder, said = Path(source), " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        if not folder.is_dir() and isinstance(error, OSError):
            raise OSError(f"{source} is not a folder, and cannot be loaded from the Hub: {said}") from error
        if isinstance(error, KeyError):
            said = f"{said} is missing or unknown"
        if file == TOKENIZER:
            file = f"{TOKENIZER} or {TOKENIZER_CONFIG}"
        elif file == CONFIG and isinstance(error, SafetensorError):
            file = WEIGHTS
        raise ModelFileError(f"{folder / file} cannot be loaded: {said}. Restore or correct the file.") from error


def check_files(folder: str | Path) -> None:
    """Check that the settings of a model folder are JSON objects; other names are not checked."""
    for name in (CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG):
        if (path := Path(folder) / name).is_file():
            read_object(path)


def check_complete(report: Mapping[str, Any], source: str) -> None:
    """Check that a checkpoint and its configuration have the same tensors.

    Args:
        report: loading report of transformers (`output_loading_info`). Tensors that a model class declares as ignorable, such
            as rotary buffers, are not in it.
        source: name of the checkpoint in errors.
    """
    if wrong := sorted(report.get("mismatched_keys") or ()):
        name, found, expected = wrong[0]
        raise ModelFileError(
            f"{source}: tensors of the checkpoint have other shapes than its config.json gives: {name} has {tuple(found)}, "
            f"expected {tuple(expected)}{f', and {len(wrong) - 1} more' if len(wrong) > 1 else ''}; restore the two files."
        )
    kinds = {"missing": report.get("missing_keys"), "in no layer of the model": report.get("unexpected_keys")}
    said = [
        f"{len(names)} {kind} ({', '.join(sorted(names)[:3])}{', ...' if len(names) > 3 else ''})"
        for kind, names in kinds.items()
        if names
    ]
    if said:
        raise ModelFileError(
            f"{source}: the checkpoint does not fit its config.json; of its tensors, {' and '.join(said)}. Missing tensors "
            "would be random numbers. Restore the files, or correct model_type and num_hidden_layers in config.json."
        )


def check_finite(model: nn.Module, source: str) -> None:
    """Check the weights of a model, by sums, which take a fraction of the time that reading them took."""
    import torch

    for name, parameter in model.named_parameters():
        if parameter.is_meta or not parameter.is_floating_point() or parameter.dtype.itemsize == 1:
            continue  # quantized, or not in memory
        if not parameter.sum(dtype=torch.float32).isfinite():
            raise ModelFileError(
                f"{source}: the tensor {name} of the checkpoint has values that are NaN or infinite; restore its .safetensors "
                "file."
            )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a small safetensors file."""
    from safetensors.torch import load_file

    with explain_damage(path.parent, path.name):
        tensors = load_file(path)
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ModelFileError(f"{path}: {name} has values that are NaN or infinite; restore the file.")
    return tensors


def holds_exactly(folder: Path, weights: Mapping[str, Tensor]) -> bool:
    """Whether the weight files of a folder hold exactly these tensors, bit by bit; tied ones may be stored once."""
    from safetensors import safe_open

    left, stored = dict(weights), set[int]()
    for path in sorted(folder.glob(f"{Path(WEIGHTS).stem}*.safetensors")):
        with explain_damage(folder, path.name), safe_open(path, framework="pt") as file:
            for name in file.offset_keys():
                found, tensor = file.get_tensor(name), left.pop(name, None)
                if tensor is None or found.dtype != tensor.dtype or found.shape != tensor.shape:
                    return False
                if not bool((found == tensor.to(found.device)).all()):
                    return False
                stored.add(tensor.data_ptr())
    return all(tensor.data_ptr() in stored for tensor in left.values())
