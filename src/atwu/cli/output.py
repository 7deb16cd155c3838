"""What commands say beside their results, and the file that a result is written to."""

from __future__ import annotations

import codecs
import contextlib
import io
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from atwu._files import check_writable
from atwu.cli.cli_options import cli_option

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"red": 31, "yellow": 33}


_PLAIN = str.maketrans("–−×·’‘“”↑↓²ℓΔ₀₁", "--x*''\"\"^v2lD01") | str.maketrans(
    {"±": "+-", "…": "...", "→": "->", "√": "sqrt", "Σ": "sum", "‖": "||", "α": "alpha", "β": "beta", "γ": "gamma"}
    | {"δ": "delta", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau"}
)
"""What stands for a sign of ours where a terminal does not have it."""


def any_terminal() -> None:
    """Print to terminals of any encoding: signs as ASCII, all that is in rows and names as Python writes it (`\\xe9`)."""
    codecs.register_error("atwu", _as_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="atwu")


def _as_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return signs.translate(_PLAIN).encode("ascii", "backslashreplace").decode(), error.end


def say(text: object) -> None:
    """A line on standard output, at once, wherever that goes."""
    _line(text, sys.stdout)


def terminal() -> Console:
    """Where tables are printed; square brackets in names are nothing but text there."""
    from rich.console import Console

    return Console(markup=False, emoji=False)


def note(text: object) -> None:
    """A line that is no result."""
    _line(text, sys.stderr)


def _line(text: object, stream: TextIO) -> None:
    """Above a progress bar, if one is shown."""
    tqdm = sys.modules.get("tqdm")
    with tqdm.tqdm.external_write_mode(stream) if tqdm else contextlib.nullcontext():
        print(text, file=stream, flush=True)


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

    output: Path | None = cli_option("Write the result as JSON.", None, alias=("-o",))
    overwrite: bool = cli_option("Replace what is at --output.", False)

    def check(self) -> None:
        """Check that the result can be written, before anything is computed."""
        check_writable(self.output, overwrite=self.overwrite)
