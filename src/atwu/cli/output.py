"""Print the messages of commands, and declare the file of a result."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from atwu._file_reading import printable
from atwu._files import check_writable
from atwu.cli.cli_options import cli_option

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"red": 31, "yellow": 33}


def say(text: object) -> None:
    """Print a text to standard output, without control characters, and flush it."""
    _line(printable(str(text)), sys.stdout)


def terminal() -> Console:
    """Return the console for tables; square brackets are plain text."""
    from rich.console import Console

    return Console(markup=False, emoji=False)


def note(text: object) -> None:
    """Print a message to standard error, without control characters."""
    _line(printable(str(text)), sys.stderr)


def _line(text: str, stream: TextIO) -> None:
    """Print a line above a progress bar, if there is one."""
    tqdm = sys.modules.get("tqdm")
    with tqdm.tqdm.external_write_mode(stream) if tqdm else contextlib.nullcontext():
        print(text, file=stream, flush=True)


def stand_out(text: object, colour: str = "yellow") -> None:
    """Print a highlighted message to standard error."""
    shown = printable(str(text))
    _line(f"\033[{_COLOURS[colour]}m{shown}\033[0m" if sys.stderr.isatty() else shown, sys.stderr)


def warn(warnings: Iterable[object]) -> None:
    """Print each warning on a line."""
    for warning in warnings:
        stand_out(f"warning: {warning}")


@dataclass(kw_only=True)
class ResultFile:
    """The file of a result."""

    output: Path | None = cli_option("JSON file for the result.", None, alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)

    def check(self) -> None:
        """Check that the result can be written, before any work."""
        check_writable(self.output, overwrite=self.overwrite)
