"""Several searches worked off by one queue: a later one begins where those before it leave workers idle."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator

from atwu.experiments.queue import Queue, Task, TaskResult, run_tasks
from atwu.experiments.tuning.trials import Trials, quiet_optuna

Searches = Generator[Trials]
"""The searches of one line, one after the other: it is asked for the next when the last one is over."""


def search_all(lines: Iterable[Searches], queue: Queue) -> None:
    """Work off the searches of all lines.

    Raises:
        Exception: what a trial or a line failed with; all searches can be continued.
    """
    later, begun, running = iter(lines), dict[Searches, Trials](), dict[str, Searches]()

    def advance(line: Searches) -> None:
        while (trials := next(line, None)) is not None and trials.over:
            pass
        if trials is None:
            begun.pop(line, None)
        else:
            begun[line] = trials

    def opened() -> Iterator[Searches]:
        for line in later:
            leaving.callback(line.close)
            advance(line)
            if line in begun:
                yield line

    def begin() -> tuple[str, Task] | None:
        for line in itertools.chain(tuple(begun), opened()):
            if (found := begun[line].begin()) is not None:
                running[found[0]] = line
                return found
        return None

    def finish(key: str, done: TaskResult) -> None:
        line = running.pop(key)
        begun[line].finish(done)
        if begun[line].over:
            advance(line)

    with quiet_optuna(), contextlib.ExitStack() as leaving:
        run_tasks(queue, begin, finish)
