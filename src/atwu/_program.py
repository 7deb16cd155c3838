"""How this command line was started, for commands that are suggested next: `atwu`, or a script that registers methods."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

_program = ["atwu"]


def set_program(started_as: str) -> None:
    """Note the path of the running program; a script of the user registers what plain `atwu` does not know."""
    path = Path(started_as)
    _program[:] = ["python", started_as] if path.suffix == ".py" and path.name != "__main__.py" else ["atwu"]


def program() -> list[str]:
    """Return the words that start the same command line again."""
    return list(_program)


def command_line(words: Sequence[str]) -> str:
    """Quote words as the shell of this system reads them."""
    if os.name == "nt":
        return subprocess.list2cmdline(words)
    return shlex.join(words)
