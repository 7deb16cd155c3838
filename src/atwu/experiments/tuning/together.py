"""Several searches worked off by one queue: a later one begins where those before it leave workers idle."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable

from atwu.experiments.queue import Done, Queue, Task, work_off
from atwu.experiments.tuning.trials import Trials, quiet_optuna

Searches = Generator[Trials]
"""The searches of one line, one after the other: it is asked for the next when the last one is over."""


def search_all(lines: Iterable[Searches], queue: Queue) -> None:
    """Work off the searches of all lines.

    Raises:
        Exception: what a trial or a line failed with; all searches can be continued.
    """
    later, running = iter(lines), dict[str, Trials]()
    begun: dict[Searches, Trials | None] = {}

    def begin() -> tuple[str, Task] | None:
        for line in itertools.chain(tuple(begun), later):
            if line not in begun:
                leaving.callback(line.close)
                begun[line] = next(line, None)
            while (trials := begun[line]) is not None and trials.over:
                begun[line] = next(line, None)
            if trials is not None and (found := trials.begin()) is not None:
                running[found[0]] = trials
                return found
        return None

    def finish(key: str, done: Done) -> None:
        running.pop(key).finish(done)

    with quiet_optuna(), contextlib.ExitStack() as leaving:
        work_off(queue, begin, finish)
