"""Progress by tqdm: a bar on terminals and in notebooks, otherwise a text line every few seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

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
) -> Any:
    """Create a progress bar on standard error.

    Args:
        desc: name of the task, one or two words.
        unit: name of an item, in the singular.
        leave: keep a finished bar on the terminal.
    """
    task = desc or "progress"
    bar: Any
    # The kernel of a notebook has no terminal, and draws bars all the same.
    if shown and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        from tqdm.auto import tqdm as drawn_bar

        bar = drawn_bar(rows, total=total, desc=task, unit=unit, initial=initial, leave=leave, dynamic_ncols=True)
    else:
        bar = Lines(rows, total=total, desc=task, unit=unit, initial=initial, shown=shown)
    return bar


class Lines(tqdm):  # type: ignore[misc]
    """Progress as text lines: `training: 12 of 40 steps, 01:36 elapsed, about 03:44 left`."""

    disable: bool
    monitor_interval = 0  # no thread, which could print while the process forks

    def __init__(self, rows: Iterable[Any] | None = None, *, shown: bool = True, **options: Any):
        self._shown = shown
        count = "{desc}: {n_fmt} of {total_fmt} {unit}s"
        # The estimate is of the mean since the start: evaluation makes some steps of training much longer than others.
        # With `miniters` open, tqdm learns from fast steps to look at the clock rarely, and is silent through slow ones.
        super().__init__(rows, mininterval=EVERY, miniters=1, smoothing=0, bar_format=count, **options)
        self.bar_format = count + ", {elapsed} elapsed, about {remaining} left{postfix}"

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self._shown:
            print(self, file=self.fp, flush=True)

    def close(self) -> None:
        """Print the total time, if at least one line was printed in between."""
        if self.disable:
            return
        self.disable = True
        self._decr_instances(self)
        if self.last_print_t > self.start_t:
            self.bar_format = "{desc}: {n_fmt} of {total_fmt} {unit}s in {elapsed}{postfix}"
            self.display()
