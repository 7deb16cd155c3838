"""Tensors that are computed once and kept on disk: safetensors, found by what they were computed from, checked on reading."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._disk_errors import cannot_write
from atwu._files import atomic_sibling, move

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)


def cache_folder() -> Path:
    """`$ATWU_CACHE`, or `atwu` in the user's cache folder."""
    base = os.environ.get("ATWU_CACHE")
    return Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atwu"


def place_for(folder: Path) -> Path:
    """Where a folder of the cache is made: there, or in one that goes with this process where the cache is read-only."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if os.access(there, os.W_OK):
        return folder
    warn_uncached(there, os.strerror(errno.EROFS))
    return Path(_scratch().name) / folder.name


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="atwu-")


def short_hash(value: Any) -> str:
    """Hash of plain JSON, 32 hexadecimal digits."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def hash_of_list(values: Iterable[Any], digest: Any) -> str:
    """Hexadecimal `hashlib` digest of the JSON of a list whose values are not all held at once."""
    digest.update(b"[")
    for number, value in enumerate(values):
        digest.update((", " if number else "").encode() + json.dumps(value, sort_keys=True).encode())
    digest.update(b"]")
    return str(digest.hexdigest())


def is_cached(folder: Path, key: Mapping[str, Any]) -> bool:
    """Whether a file for `key` is there; whether it is whole shows when it is read."""
    return (folder / f"{short_hash(key)}.safetensors").is_file()


def cached_tensors(folder: Path, key: Mapping[str, Any], build: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors that belong to `key`: read from `folder` if they are there and whole, else built and written.

    Args:
        folder: where cache files lie; created if needed.
        key: everything that can change the tensors, as plain JSON; also names the file.
        build: computes them.

    Returns:
        CPU tensors by name, mapped from the file.
    """
    from safetensors.torch import save_file

    name = short_hash(key)
    path = folder / f"{name}.safetensors"
    if path.is_file():
        found = _read(path, name)
        if found is not None:
            return found
        logger.warning("cache file %s is damaged or stale; building it again", path)
    built = {name: tensor.detach().cpu().contiguous() for name, tensor in build().items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_sibling(path) as staging:
            save_file(built, staging / path.name, metadata={"key": name, "digest": tensor_digest(built)})
            move(staging / path.name, path)
    except Exception as error:  # safetensors has its own
        if (reason := cannot_write(error)) is None:
            raise
        warn_uncached(folder.parent, reason)
    return built


@functools.cache
def warn_uncached(folder: Path, reason: str) -> None:
    """Say once that nothing can be kept in the cache."""
    logger.warning(
        "warning: %s cannot be written to (%s); what belongs there is computed anew each time", folder, reason
    )


def _read(path: Path, name: str) -> dict[str, Tensor] | None:
    """The file's tensors, or None if it is not what it says."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        return None
    whole = metadata.get("key") == name and metadata.get("digest") == tensor_digest(tensors)
    return tensors if whole else None


def tensor_digest(tensors: Mapping[str, Tensor], before: bytes = b"") -> str:
    """Hash of tensors by name (dtype, shape and bytes), and of what comes before them, 32 hexadecimal digits."""
    import torch

    digest = hashlib.blake2b(before, digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
