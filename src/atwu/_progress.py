"""Progress display: a bar on terminals and in notebooks, otherwise a text line every few seconds."""

from __future__ import annotations

import importlib.util
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

EVERY = 15.0
"""Seconds between two lines."""


def progress_bar(
    rows: Iterable[Any] | None = None,
    *,
    total: int,
    desc: str | None,
    unit: str,
    shown: bool = True,
    leave: bool = True,
    initial: int = 0,
    remaining: Callable[[], float | None] | None = None,
) -> Any:
    """Create a progress bar, or a text logger with the same methods as tqdm, on standard error.

    Args:
        desc: name of the task, one or two words.
        unit: name of an item, in the singular.
        leave: keep a finished bar on the terminal.
        remaining: estimates the remaining seconds, None while it cannot; by default from the mean time per item.
    """
    desc = desc or "progress"
    bar: Any
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    notebook = hasattr(shell, "kernel")
    if shown and (notebook or sys.stderr.isatty()):
        if notebook and importlib.util.find_spec("ipywidgets"):
            from tqdm.notebook import tqdm
        else:
            from tqdm import tqdm

        bar = tqdm(rows, total=total, desc=desc, unit=unit, leave=leave, initial=initial, dynamic_ncols=True)
        if remaining is not None:
            bar.bar_format = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
            show = bar.set_postfix_str

            def with_estimate(text: str, refresh: bool = True) -> None:
                seconds = remaining()
                left = [] if seconds is None else [f"about {clock(seconds)} left"]
                show(", ".join([*left, *filter(None, [text])]), refresh=refresh)

            bar.set_postfix_str = with_estimate
    else:
        file = sys.stderr if shown else None
        bar = Lines(rows, total=total, desc=desc, unit=unit, initial=initial, file=file, remaining=remaining)
    _bars[:] = [each for each in _bars if _going(each[0]())]
    _bars.append((weakref.ref(bar), desc))
    return bar


_bars: list[tuple[weakref.ref[Any], str]] = []
"""Unfinished bars, outer ones first, and the newest one, each with its task."""


def _going(bar: Any) -> bool:
    return bar is not None and not bar.disable and bar.n < bar.total


def progress_text() -> str:
    """Describe the progress of all open bars: `at runs: 3 of 12 runs, training: 4 of 40 steps`."""
    going: list[Any] = [bar for each, _ in _bars if _going(bar := each())]
    if not going:
        return f"after: {_bars[-1][1]}" if _bars else "while starting"
    return "at " + ", ".join(f"{bar.desc}: {bar.n} of {bar.total} {bar.unit}s" for bar in going)


class Lines:
    """Progress as text lines: `training: 12 of 40 steps, 1:36 elapsed, about 3:44 left`."""

    def __init__(
        self,
        rows: Iterable[Any] | None = None,
        *,
        total: int,
        desc: str,
        unit: str,
        initial: int = 0,
        file: TextIO | None,
        remaining: Callable[[], float | None] | None = None,
    ) -> None:
        self.total, self.n, self.desc, self.unit = total, initial, desc, unit
        self.disable = False
        """Whether it is closed; the name is tqdm's."""
        self._rows, self._initial, self._file, self._remaining = rows, initial, file, remaining
        self._begun = self._told = time.monotonic()
        self._after = ""
        self._write(f"{desc}: {total - initial} {unit}{'' if total - initial == 1 else 's'}")

    def update(self, n: int = 1) -> None:
        self.n += n
        now = time.monotonic()
        if now - self._told < EVERY or self.n >= self.total:
            return
        self._told = now
        gone, done = now - self._begun, self.n - self._initial
        if self._remaining is not None:
            seconds = self._remaining()
        else:
            seconds = gone / done * (self.total - self.n) if done else None
        left = "" if seconds is None else f", about {clock(seconds)} left"
        self._write(f"{self.desc}: {self.n} of {self.total} {self.unit}s, {clock(gone)} elapsed{left}{self._after}")

    def set_postfix_str(self, text: str, refresh: bool = True) -> None:
        """Set the text in parentheses at the end of the next line."""
        self._after = f" ({text})" if text else ""

    def close(self) -> None:
        """Print the total time, if at least one line was printed in between."""
        self.disable = True
        if self._told > self._begun:
            self._told = self._begun
            gone = clock(time.monotonic() - self._begun)
            self._write(f"{self.desc}: {self.n} of {self.total} {self.unit}s in {gone}{self._after}")

    def _write(self, line: str) -> None:
        if self._file is not None:
            print(line, file=self._file, flush=True)

    def __iter__(self) -> Iterator[Any]:
        for row in self._rows or ():
            yield row
            self.update()
        self.close()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def clock(seconds: float) -> str:
    """Format seconds: `0:07`, `12:30`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
