"""Run several searches on one queue: a later search starts when earlier ones leave workers idle."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator

from atwu.experiments.queue import Queue, Task, TaskResult, run_tasks
from atwu.experiments.tuning.trials import Trials, quiet_optuna

Searches = Generator[Trials]
"""Searches of one method, in sequence: the next is requested when the last one is finished."""


def search_all(every: Iterable[Searches], queue: Queue) -> None:
    """Run the searches of all methods.

    Raises:
        Exception: the error of a trial or method; all searches can be continued.
    """
    later, begun, running = iter(every), dict[Searches, Trials](), dict[str, Searches]()

    def advance(searches: Searches) -> None:
        while (trials := next(searches, None)) is not None and trials.over:
            pass
        if trials is None:
            begun.pop(searches, None)
        else:
            begun[searches] = trials

    def opened() -> Iterator[Searches]:
        for searches in later:
            leaving.callback(searches.close)
            advance(searches)
            if searches in begun:
                yield searches

    def begin() -> tuple[str, Task] | None:
        for searches in itertools.chain(tuple(begun), opened()):
            if (found := begun[searches].begin()) is not None:
                running[found[0]] = searches
                return found
        return None

    def finish(key: str, done: TaskResult) -> None:
        searches = running.pop(key)
        begun[searches].finish(done)
        if begun[searches].over:
            advance(searches)

    with quiet_optuna(), contextlib.ExitStack() as leaving:
        run_tasks(queue, begin, finish)
