"""Write files atomically, lock and hash them; list the package versions that results depend on.

Errors of any library that mean a full disk are detected and reported in one line.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from atwu.errors import DiskFullError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_MESSAGE = re.compile(r"\(os error (28|112|122)\)|inline_container\.cc|^\d+ requested and \d+ written")
"""Messages for a write that failed on a full disk: of libraries in Rust (safetensors, tokenizers) with the number of Linux,
Windows or a quota, and of PyTorch and NumPy, which give no reason."""
_OF_MODEL = re.compile(
    r"((generation_|adapter_|tokenizer_)?config|special_tokens_map|added_tokens|tokenizer|vocab)\.json|merges\.txt"
    r"|(run|manifest|verdict|export)\.json|log\.jsonl|.*\.(safetensors(\.index\.json)?|gguf|jinja|model)"
)
"""Names of files that a folder of a model or a run cannot do without."""
_TEMPORARY = ".tmp"
_LOCK = f".lock{_TEMPORARY}"


def write_json(path: str | Path, value: Any) -> None:
    """Write indented JSON atomically; values that JSON does not support are written as text."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """Write a file atomically and sync it to disk; follows symbolic links and creates the parent folder."""
    write_parts(path, (text,))


def write_parts(path: str | Path, parts: Iterable[str]) -> None:
    """Write the parts of a text as `write_text` does, without holding all of them in memory."""
    # `os.replace` would replace a symbolic link instead of the file it points to.
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(path), atomic_sibling(path, Path.touch) as temporary:
        # The same bytes on every system, since manifests hold hashes of files.
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(parts)
        move(temporary, path)


@contextlib.contextmanager
def atomic_sibling(path: Path, make: Callable[[Path], object] = Path.mkdir) -> Iterator[Path]:
    """Create a hidden file or folder in the same folder as `path`, to be moved there when complete.

    It is removed on leaving. A lock file beside it (Windows cannot lock folders) distinguishes it from what killed
    processes left behind.
    """
    # What a kill left may have gigabytes; whoever writes the same path next removes it.
    clear_atomic_siblings(path)
    # A name of its own, since several processes may write the same path at once.
    temporary = path.with_name(f"{_hidden(path)}{uuid.uuid4().hex[:12]}{_TEMPORARY}")
    lock = FileLock(temporary.with_suffix(_LOCK))
    with contextlib.suppress(OSError, NotImplementedError):  # no locks there; a closed folder is reported by `make`
        lock.acquire()
    try:
        make(temporary)
        yield temporary
    finally:
        _remove(temporary)
        _remove_lock(lock)


def clear_atomic_siblings(path: Path) -> None:
    """Remove leftovers of `atomic_sibling` from killed processes."""
    for left in path.parent.glob(f"{glob.escape(_hidden(path))}*{_LOCK}"):
        with contextlib.suppress(Timeout, OSError), FileLock(left, timeout=0) as lock:  # held by a running process
            _remove(left.with_name(left.name.removesuffix(_LOCK) + _TEMPORARY))
            _remove_lock(lock)


def is_atomic_sibling(path: Path) -> bool:
    """Whether a path is, or lies in, a temporary entry of `atomic_sibling`."""
    return any(part.startswith(".") and part.endswith(_TEMPORARY) for part in path.parts)


def _hidden(path: Path) -> str:
    return f".{path.name[:50]}."  # file systems limit the length of a name


def _remove_lock(lock: BaseFileLock) -> None:
    if os.name != "nt":  # there, where no open file can be removed, the release removes it
        Path(lock.lock_file).unlink(missing_ok=True)  # while it is held, so that nobody else finds it free
    lock.release()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def move(source: Path, target: Path) -> None:
    """Replace a file or folder by another one in one step that survives a power failure."""
    # A rename may reach the disk before the contents do, and a power failure would leave an empty file.
    synced(source)
    os.replace(source, target)
    synced(target.parent)


def synced(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on disk."""
    flags = os.O_RDONLY
    if os.name == "nt":
        if path.is_dir():  # cannot be opened
            return
        flags = os.O_RDWR  # what is opened to read cannot be synced
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def plain_modes(*paths: Path) -> None:
    """Give files and folders the default permissions of the umask; safetensors and tempfile make theirs private."""
    # The umask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    for path in paths:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def check_writable(path: Path | None, *, overwrite: bool) -> None:
    """Check that a file can be written, before anything is computed; None is accepted."""
    if path is None:
        return
    if path.exists():
        if not path.is_file():
            raise OSError(f"cannot write {path}: it is not a regular file; choose another output.")
        if not overwrite:
            raise FileExistsError(f"{path} exists; choose another output or pass --overwrite.")
        if _OF_MODEL.fullmatch(Path(os.path.realpath(path)).name):
            raise FileExistsError(f"{path} is a file of a model or run, which would be lost; choose another output.")
    folder = Path(os.path.realpath(path)).parent
    if not folder.exists():
        raise FileNotFoundError(f"cannot write {path}: folder {folder} does not exist.")
    check_output_folder(folder)


def check_output_folder(folder: Path) -> None:
    """Check that a folder for output files exists or can be created, before anything is computed."""
    whole = Path(os.path.realpath(folder))
    existing = next(path for path in (whole, *whole.parents) if path.exists())
    if not existing.is_dir():
        raise NotADirectoryError(f"cannot write into {folder}: {existing} is a file; choose another output.")
    if not os.access(existing, os.W_OK):
        raise PermissionError(f"cannot write into {folder}: {existing} is read-only; choose another output.")


@contextlib.contextmanager
def file_lock(
    lock: Path, *, taken: Exception | None = None, waiting: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Hold a file lock for the life of the process at most.

    Args:
        taken: raised if another process holds the lock; None waits for it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    file = FileLock(lock)
    try:
        # Without waiting at first, so that a command that has to wait can say so.
        file.acquire(timeout=0)
    except Timeout:
        if taken is not None:
            raise taken from None
        waiting()
        file.acquire()
    try:
        yield
    finally:
        file.release()


@contextlib.contextmanager
def explain_full_disk(where: Path) -> Iterator[None]:
    """Turn an error caused by a full disk into one that names the path and the next step."""
    try:
        yield
    except Exception as error:
        # Rust and PyTorch raise classes of their own, without the number of the system's error.
        numbered = isinstance(error, OSError) and error.errno in _FULL
        if not (numbered or _FULL_MESSAGE.search(str(error))):
            raise
        raise DiskFullError(
            f"the disk is full: cannot write {where}. Free some space there and run the same command again; it "
            "continues from what is already written."
        ) from error


def file_digest(*paths: str | Path) -> str:
    """Hash the contents of files in the given order; 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        with Path(path).open("rb") as file:
            # It wants a function that makes a hash; one that returns the same hash goes on with it.
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def sha256_of(path: str | Path) -> str:
    """Compute the SHA-256 of a file, as `sha256sum` prints it."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of the packages that results depend on."""
    import importlib.metadata

    # Those whose code lies between a text and the weights.
    names = ("atwu", "torch", "transformers", "accelerate", "tokenizers")
    return {name: importlib.metadata.version(name) for name in names}
