"""What commands share: messages to the terminal, the file of a result, and rows of a source."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from atwu._file_reading import printable
from atwu._files import check_writable
from atwu.cli.cli_options import cli_option

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from atwu.data.schema import Example

_COLOURS = {"red": 31, "yellow": 33}


def say(text: object) -> None:
    """Print a text to standard output, without control characters, and flush it."""
    _line(printable(str(text)), sys.stdout)


def terminal(*, highlight: bool = True) -> Console:
    """Return the console for tables; square brackets are plain text."""
    from rich.console import Console

    width = None
    if os.environ.get("COLUMNS", "1").strip() == "0":  # Rich would take 0 literally
        width = shutil.get_terminal_size().columns
    # Rows and names of models hold square brackets and colons, which Rich would read as styles and emoji.
    return Console(markup=False, emoji=False, highlight=highlight, width=width)


def plain_table(*heads: str, right: Collection[str] = ()) -> Table:
    """Return a table without lines, with the columns `right` aligned to the right."""
    from rich.table import Column, Table

    columns = (Column(head, justify="right" if head in right else "left", overflow="fold") for head in heads)
    return Table(*columns, box=None, pad_edge=False)


def note(text: object) -> None:
    _line(printable(str(text)), sys.stderr)


def _line(text: str, stream: TextIO) -> None:
    """Print a line above a progress bar, if there is one."""
    tqdm = sys.modules.get("tqdm")  # without its module there is no bar, and its import takes time
    with tqdm.tqdm.external_write_mode(stream) if tqdm else contextlib.nullcontext():
        print(text, file=stream, flush=True)


def stand_out(text: object, colour: str = "yellow") -> None:
    """Print a highlighted message to standard error."""
    shown = printable(str(text))
    # Older Windows consoles, which set no WT_SESSION, print the codes.
    if sys.stderr.isatty() and (os.name != "nt" or "WT_SESSION" in os.environ):
        shown = f"\033[{_COLOURS[colour]}m{shown}\033[0m"
    _line(shown, sys.stderr)


def warn(warnings: Iterable[object]) -> None:
    for warning in warnings:
        stand_out(f"warning: {warning}")


@dataclass(kw_only=True)
class ResultFile:
    output: Path | None = cli_option("JSON file for the result.", None, alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)

    def check(self) -> None:
        """Check that the result can be written, before any work."""
        check_writable(self.output, overwrite=self.overwrite)


ROWS_HELP = "file, Hub data set or people:SIZE:SPLIT"
DEVICE = "Device: cpu, cuda, cuda:1, mps. Default: the best available."


def open_rows(source: str | None, *, limit: int | None = None) -> Sequence[Example]:
    """Load at most `limit` evenly spaced rows of a source and print warnings; an empty tuple without a source."""
    if source is None:
        return ()
    from atwu.benchmarks.base import evenly_spaced
    from atwu.benchmarks.sources import load_rows

    loaded = load_rows(source)
    warn(f"{source}: {warning}" for warning in loaded.warnings)
    return evenly_spaced(loaded.rows, limit)
