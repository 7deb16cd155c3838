"""Run the converter of a local llama.cpp checkout, for models and GGUF types that atwu does not write itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = "convert_hf_to_gguf.py"
CONVERTED = {"F32": "f32", "F16": "f16", "BF16": "bf16", "Q8_0": "q8_0"}
"""Types that the script writes; `llama-quantize` makes all others from F32."""
_PLACES = ("build/bin", "bin", ".")


def check_llama_cpp(folder: Path, kind: str) -> None:
    """Check that a checkout can write a GGUF type."""
    if not (folder / SCRIPT).is_file():
        raise FileNotFoundError(f"{folder} has no {SCRIPT}; --llama-cpp needs a checkout of llama.cpp.")
    if kind.upper() not in CONVERTED and _quantizer(folder) is None:
        raise FileNotFoundError(
            f"{kind} needs llama-quantize, which is not built in {folder} (build/bin); build it, or choose one of "
            f"{', '.join(CONVERTED)}."
        )


def convert(folder: Path, model: Path, path: Path, kind: str) -> None:
    """Convert a saved model to GGUF with a type of llama.cpp.

    Raises:
        ValueError: llama.cpp failed; the last line of its output.
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
        output = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise ValueError(
            f"{Path(command[1] if command[0] == sys.executable else command[0]).name} failed: {output[-1]}"
        )
