"""Llama.cpp's own converter, from a checkout on this machine: for models and kinds of rounding that are not written here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = "convert_hf_to_gguf.py"
CONVERTED = {"F32": "f32", "F16": "f16", "BF16": "bf16", "Q8_0": "q8_0"}
"""Kinds that the script writes itself; all others are made of F32 by `llama-quantize`."""
_PLACES = ("build/bin", "bin", ".")


def check_llama_cpp(folder: Path, kind: str) -> None:
    """Check that a checkout can write a kind of GGUF.

    Raises:
        FileNotFoundError: no such folder, or it lacks the script, or a built `llama-quantize` where that is needed.
    """
    if not (folder / SCRIPT).is_file():
        raise FileNotFoundError(f"{folder} holds no {SCRIPT}; --llama-cpp takes a checkout of llama.cpp.")
    if kind.upper() not in CONVERTED and _quantizer(folder) is None:
        raise FileNotFoundError(
            f"{kind} takes llama-quantize, which is not built in {folder} (build/bin); build it, or choose one of "
            f"{', '.join(CONVERTED)}."
        )


def convert(folder: Path, model: Path, path: Path, kind: str) -> None:
    """Write a saved model as GGUF, with its matrices in a kind as llama.cpp calls it.

    Raises:
        ValueError: llama.cpp refused; the last line that it said.
    """
    written = CONVERTED.get(kind.upper())
    first = path if written else path.with_suffix(".f32.gguf")
    script = [sys.executable, str(folder / SCRIPT), str(model), "--outfile", str(first)]
    _run([*script, "--outtype", written or "f32"], first)
    if written is None:
        _run([str(_quantizer(folder)), str(first), str(path), kind], path)
        first.unlink()


def _quantizer(folder: Path) -> Path | None:
    places = [folder / place / "llama-quantize" for place in _PLACES]
    return next((place for place in places if place.is_file()), None)


def _run(command: list[str], written: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not written.is_file():
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
        raise ValueError(f"{Path(command[1] if command[0] == sys.executable else command[0]).name} failed: {said[-1]}")
