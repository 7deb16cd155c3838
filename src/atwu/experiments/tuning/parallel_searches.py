"""Run several searches on one queue: a later search starts when earlier ones leave workers idle."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator

from atwu.experiments.queue import Queue, Task, TaskResult, run_tasks
from atwu.experiments.tuning.trials import Trials, quiet_optuna

Searches = Generator[Trials]
"""Searches of one method, in sequence: the next is requested when the last one is finished."""


def search_all(lines: Iterable[Searches], queue: Queue) -> None:
    """Run the searches of all methods.

    Raises:
        Exception: the error of a trial or method; all searches can be continued.
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
