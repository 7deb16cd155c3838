"""What commands say beside their results, and the file that a result is written to."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from atwu._files import check_writable
from atwu.cli.options import option

_COLOURS = {"red": 31, "yellow": 33}


def say(text: object) -> None:
    """A line on standard output, at once, wherever that goes."""
    print(text, flush=True)


def note(text: object) -> None:
    """A line that is no result."""
    print(text, file=sys.stderr, flush=True)


def stand_out(text: object, colour: str = "yellow") -> None:
    """A line that is no result and should be seen."""
    note(coloured(text, colour, sys.stderr))


def warn(warnings: Iterable[object]) -> None:
    """A line for each warning."""
    for warning in warnings:
        stand_out(f"warning: {warning}")


def coloured(text: object, colour: str, stream: TextIO) -> str:
    """In colour, where that is a terminal."""
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if stream.isatty() else str(text)


@dataclass(kw_only=True)
class ResultFile:
    """Where a result goes."""

    output: Path | None = option("Write the result as JSON.", None, alias=("-o",))
    overwrite: bool = option("Replace what is at --output.", False)

    def check(self) -> None:
        """Check that the result can be written, before anything is computed."""
        check_writable(self.output, overwrite=self.overwrite)
