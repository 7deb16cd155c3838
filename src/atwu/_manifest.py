"""Folder manifests: `manifest.json` lists every file with its SHA-256, and is written last.

A folder that differs from its manifest is incomplete or damaged. Model cards are left out because users edit them.
"""

from __future__ import annotations

import functools
import logging
import shutil
from pathlib import Path

from atwu._file_reading import read_json, type_adapter
from atwu._files import is_atomic_sibling, sha256_of, synced, write_json

MANIFEST_NAME = "manifest.json"
RECORD_NAME, LOG_NAME = "run.json", "log.jsonl"
"""Files in the folder of a run."""
_EARLIER = f"{MANIFEST_NAME} is of an earlier version"

logger = logging.getLogger(__name__)


def write_manifest(folder: Path) -> None:
    """Write the manifest of a folder and sync the folder to disk."""
    # A kill during hashing must not leave a manifest that vouches for files changed since.
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    files: dict[str, str] = {}
    # Sorted, so that equal folders have equal manifests.
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if is_atomic_sibling(inside):
            continue
        synced(path)
        # Checkpoints have their own manifests and are removed one by one.
        if path.is_file() and path.name != "README.md" and not inside.parts[0].startswith("checkpoint-"):
            files[inside.as_posix()] = sha256_of(path)
    write_json(folder / MANIFEST_NAME, {"files": files})


def damage(folder: Path, *, weights: bool = True) -> str | None:
    """Describe how a folder differs from its manifest, or return None; extra files are allowed.

    Args:
        weights: also hash weight files, which takes about a second per gigabyte.
    """
    if not (folder / MANIFEST_NAME).is_file():
        return f"{MANIFEST_NAME} is missing"
    try:
        manifest = read_json(folder / MANIFEST_NAME)
    except (OSError, ValueError):
        return f"{MANIFEST_NAME} cannot be read"
    try:
        digests = type_adapter(dict[str, dict[str, str]]).validate_python(manifest)["files"]
    except (ValueError, LookupError):
        return _EARLIER
    for name, digest in digests.items():
        if ".safetensors" in name and not weights:
            continue
        if not (folder / name).is_file():
            return f"{name} is missing"
        if sha256_of(folder / name) != digest:
            return f"{name} has other contents than were written"
    return None


def check_as_written(folder: Path, *, weights: bool = True) -> None:
    """Check a folder against its manifest, if it has one; once per process while its files do not change.

    A run without a manifest gives a warning.
    """
    if not (folder / MANIFEST_NAME).is_file():
        if weights and (folder / RECORD_NAME).is_file():
            _warn_unchecked(folder)
        return
    # Part of what the result is cached under: a folder that changed is checked again.
    times = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()))
    wrong = _damage_at(folder, times, weights)
    if wrong is not None:
        raise ValueError(
            f"{folder} is damaged ({wrong}); create it again, or remove its {MANIFEST_NAME} if you changed it on purpose."
        )


@functools.cache  # says it once
def _warn_unchecked(folder: Path) -> None:
    logger.warning("warning: %s is a run without %s, so its files are not verified", folder, MANIFEST_NAME)


@functools.lru_cache(maxsize=64)
def _damage_at(folder: Path, times: tuple[tuple[str, int], ...], weights: bool) -> str | None:
    """Return `damage`; the times of the files are part of what it is cached under."""
    return damage(folder, weights=weights)


def is_intact(folder: Path) -> bool:
    """Whether a cache folder exists and is intact; one that is damaged or old is reported in a warning and removed."""
    if not folder.exists():
        return False
    wrong = damage(folder)
    if wrong is None:
        return True
    if wrong == _EARLIER:
        logger.warning("%s was written by an earlier version; it is made anew", folder)
    else:
        logger.warning("warning: %s is damaged (%s); creating it again", folder, wrong)
    shutil.rmtree(folder, ignore_errors=True)
    return False
