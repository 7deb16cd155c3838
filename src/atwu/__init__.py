"""atwu: machine unlearning for language models, with evaluation of forgetting and of retained utility.

The public names are those of `__init__.pyi`. They are loaded on first use, so that `import atwu` stays cheap.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

# Parsed, since a stub is no module that could be imported.
_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_EXPORTS = {
    alias.name: str(node.module) for node in _STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names
}
"""Public name -> its module."""

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("atwu")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'atwu' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
