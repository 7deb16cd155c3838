"""Folder manifests: `manifest.json` lists every file with its size and SHA-256, and is written last.

A folder that differs from its manifest is incomplete or damaged. Model cards are left out because users edit them.
"""

from __future__ import annotations

import functools
import logging
import shutil
import stat
from pathlib import Path

from atwu._file_reading import read_json
from atwu._files import is_atomic_sibling, sha256_of, synced, write_json

MANIFEST_NAME = "manifest.json"
RECORD_NAME, LOG_NAME = "run.json", "log.jsonl"
"""Files in the folder of a run."""

logger = logging.getLogger(__name__)


def write_manifest(folder: Path) -> None:
    """Write the manifest of a folder and sync the folder to disk."""
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    inside = [path for path in sorted(folder.rglob("*")) if not is_atomic_sibling(path.relative_to(folder))]
    for path in inside:
        synced(path)
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256_of(path)}
        for path in inside
        # Checkpoints have their own manifests and are removed one by one.
        if path.is_file()
        and path.name != "README.md"
        and not path.relative_to(folder).parts[0].startswith("checkpoint-")
    }
    write_json(folder / MANIFEST_NAME, {"files": files})


def damage(folder: Path, *, weights: bool = True) -> str | None:
    """Describe how a folder differs from its manifest, or return None; extra files are allowed.

    Args:
        weights: also hash weight files, which takes about a second per gigabyte.
    """
    try:
        files = read_json(folder / MANIFEST_NAME)["files"]
        written = [(Path(name), int(file["size"]), str(file["sha256"])) for name, file in files.items()]
    except FileNotFoundError:
        return f"{MANIFEST_NAME} is missing"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return f"{MANIFEST_NAME} cannot be read"
    for name, size, sha256 in written:
        if ".safetensors" in name.name and not weights:
            continue
        if name.is_absolute() or ".." in name.parts:
            return f"{MANIFEST_NAME} names {name}, which is outside"
        try:
            if not stat.S_ISREG((folder / name).stat().st_mode):
                return f"{name} is not a regular file"
            if (found := (folder / name).stat().st_size) != size:
                return f"{name} has {found} bytes, expected {size}"
            if sha256_of(folder / name) != sha256:
                return f"{name} has other contents than were written"
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def check_as_written(folder: Path, *, weights: bool = True) -> None:
    """Check a folder against its manifest, if it has one; once per process while its files do not change.

    A run without a manifest gives a warning.
    """
    if (folder / MANIFEST_NAME).is_file():
        times = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()))
        if (wrong := _damage_at(folder, times, weights)) is not None:
            raise ValueError(
                f"{folder} is damaged ({wrong}); create it again, or remove its {MANIFEST_NAME} if you changed "
                "it on purpose."
            )
    elif weights and (folder / RECORD_NAME).is_file():
        _warn_unchecked(folder)


@functools.cache
def _warn_unchecked(folder: Path) -> None:
    logger.warning("warning: %s is a run without %s, so its files are not verified", folder, MANIFEST_NAME)


@functools.lru_cache(maxsize=64)
def _damage_at(folder: Path, times: tuple[tuple[str, int], ...], weights: bool) -> str | None:
    return damage(folder, weights=weights)


def is_intact(folder: Path) -> bool:
    """Whether a cache folder exists and is intact; a damaged one is reported in a warning and removed."""
    if not folder.exists():
        return False
    if (wrong := damage(folder)) is None:
        return True
    logger.warning("warning: %s is damaged (%s); creating it again", folder, wrong)
    shutil.rmtree(folder, ignore_errors=True)
    return False
