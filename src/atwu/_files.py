"""Writing files so that a reader sees the old one or the whole new one, and the versions that decide the numbers."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any


def write_json(path: str | Path, value: Any) -> None:
    """Write indented JSON in one step; what JSON does not know is written as text."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def file_digest(*paths: str | Path) -> str:
    """Hash of the contents of files, in the order given, 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        with Path(path).open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    names = ("atwu", "torch", "transformers", "accelerate", "tokenizers")
    return {name: importlib.metadata.version(name) for name in names}
