"""What identifies a run or a computed value, and the cache of computed tensors on disk.

Checkpoints and requests are resumed, finished runs of studies and trials of searches are skipped, and cached values are
read only if their key is the same. Names of files come from its hash; a cached file is verified when it is read.
"""

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

from atwu._files import atomic_sibling, move

if TYPE_CHECKING:
    from torch import Tensor


def run_key(
    what: str,
    *,
    options: Mapping[str, Any],
    model: Any,
    rows: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the key of a run as plain JSON, as it is read again from a file.

    Args:
        what: what is done, such as `unlearn` or `search`.
        options: resolved options that can change the result.
        model: fingerprint of the model that it starts from; of several, by name.
        rows: fingerprints of its rows, by name.
        inputs: what else can change the result, such as versions of packages, and digests of other files.
    """
    key = {"what": what, "options": options, "model": model, "rows": rows, "inputs": inputs}
    # A tuple comes back as a list, and a key of a number as text: as they are in a stored key, with which this is compared.
    plain: dict[str, Any] = json.loads(json.dumps(key, default=str))
    return plain


def key_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List the entries that differ between two keys, such as `options.seed`."""
    names = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            names += [f"{name}.{inner}" for inner in key_differences(before, after)]
        elif before != after:
            names.append(name)
    return names


logger = logging.getLogger(__name__)


def cache_folder(folder: str | None = None) -> Path:
    """Return the cache folder: the given one, `$ATWU_CACHE`, or `atwu` in the user's cache folder."""
    base = folder or os.environ.get("ATWU_CACHE")
    if base:
        return Path(base).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atwu"


def writable_folder(folder: Path) -> Path:
    """Return the folder to write to: `folder`, or a temporary one of this process if the cache is read-only or a file."""
    # The folder may not exist yet; what counts is the nearest one above it that does.
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK):
        return folder
    reason = errno.ENOTDIR
    if existing.is_dir():
        reason = errno.EROFS
    warn_uncached(existing, os.strerror(reason))
    return Path(_scratch().name) / folder.name


# One for the whole process: what a first call stores there, later calls find.
@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="atwu-")


def short_hash(value: Any) -> str:
    """Hash plain JSON data; 32 hexadecimal digits."""
    # The order in which a mapping was built is no part of what it says.
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def hash_of_list(values: Iterable[Any], digest: Any) -> str:
    """Hash the JSON of a list without holding all its values in memory; returns the hexadecimal digest of `digest`."""
    # The bytes that `json.dumps` writes for the list, so that the hash is that of the list.
    digest.update(b"[")
    for number, value in enumerate(values):
        if number:
            digest.update(b", ")
        digest.update(json.dumps(value, sort_keys=True).encode())
    digest.update(b"]")
    return str(digest.hexdigest())


def is_cached(folder: Path, key: Mapping[str, Any]) -> bool:
    """Whether a cache file for `key` exists; its contents are verified only when read."""
    return (folder / f"{short_hash(key)}.safetensors").is_file()


def cached_tensors(folder: Path, key: Mapping[str, Any], build: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tensors for `key`: read them from `folder` if the file is intact, otherwise compute and write them.

    Args:
        key: everything that can change the tensors, as plain JSON; also names the file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    name = short_hash(key)
    path = folder / f"{name}.safetensors"
    if path.is_file():
        cached = _read(path, name)
        if cached is not None:
            return cached
        logger.warning("cache file %s is damaged or outdated; computing it again", path)
    # safetensors refuses views and tensors that share memory.
    built = {name: tensor.detach().cpu().contiguous() for name, tensor in build().items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_sibling(path) as staging:
            save_file(built, staging / path.name, metadata={"key": name, "digest": tensor_digest(built)})
            move(staging / path.name, path)
    except (OSError, SafetensorError) as error:
        warn_uncached(folder.parent, str(error))
    return built


@functools.cache
def warn_uncached(folder: Path, reason: str) -> None:
    """Warn once that the cache cannot be written."""
    logger.warning(
        "warning: cannot write to %s (%s); the values cached there are computed again in each run", folder, reason
    )


def _read(path: Path, name: str) -> dict[str, Tensor] | None:
    """Read the tensors of a cache file, or return None if the file is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            # Key and digest are ours: safetensors does not know what a file was computed from, nor see a flipped bit.
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.offset_keys()}
    except (SafetensorError, OSError):
        return None
    if metadata.get("key") != name or metadata.get("digest") != tensor_digest(tensors):
        return None
    return tensors


def tensor_digest(tensors: Mapping[str, Tensor], before: bytes = b"") -> str:
    """Hash tensors by name (dtype, shape and bytes), starting from the bytes `before`; 32 hexadecimal digits."""
    import torch

    digest = hashlib.blake2b(before, digest_size=16)
    for name, tensor in sorted(tensors.items()):
        # Equal bytes of another dtype or shape are other tensors.
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        # As bytes, since NumPy has no bfloat16.
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
