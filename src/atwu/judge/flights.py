"""Tries in flight: each has a thread of its own and a deadline, and all outcomes come out in the calling thread."""

from __future__ import annotations

import itertools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from atwu.judge.answers import Answer, Failure
from atwu.judge.chat import ChatRequest

_GRACE = 0.5
"""Seconds after its time that a try is given up; before, the transport can say itself what is wrong."""

_LONGEST_SLEEP = 0.5
"""Seconds after which an interrupt is noticed at the latest, whichever thread the system gave it to."""


@dataclass(slots=True)
class Job:
    """A request on its way to an answer."""

    index: int
    request: ChatRequest
    tries: int = 0
    due: float = 0.0
    """Moment before which it is not sent (again)."""
    deadline: float = 0.0
    """Moment at which the try in flight is given up."""


class Flights:
    """The tries of one call that are in flight. Threads are daemons, so one that hangs holds up nobody."""

    def __init__(self, send: Callable[[ChatRequest], Answer | Failure], seconds: float) -> None:
        self.jobs: dict[int, Job] = {}
        self._send, self._seconds = send, seconds
        self._numbers = itertools.count()
        self._landed: SimpleQueue[tuple[int, Answer | Failure] | None] = SimpleQueue()

    def start(self, job: Job) -> None:
        """Send a request once (more)."""
        number = next(self._numbers)
        job.tries += 1
        job.deadline = time.monotonic() + self._seconds + _GRACE
        self.jobs[number] = job

        def fly() -> None:
            self._landed.put((number, self._send(job.request)))

        threading.Thread(target=fly, name="chat", daemon=True).start()

    def land(self, until: float = math.inf) -> tuple[Job, Answer | Failure] | None:
        """The next outcome, or None if there is none until a moment; a try over its deadline has failed."""
        until = min([until, *(job.deadline for job in self.jobs.values())])
        try:
            landed = self._landed.get(timeout=min(max(0.0, until - time.monotonic()), _LONGEST_SLEEP))
            if landed is None:
                raise KeyboardInterrupt
            number, outcome = landed
        except Empty:
            now = time.monotonic()
            number = next((number for number, job in self.jobs.items() if job.deadline <= now), -1)
            outcome = Failure(f"no reply within {self._seconds:g} seconds", billed=True)
        job = self.jobs.pop(number, None)  # None: none came, or one that was given up before
        return None if job is None else (job, outcome)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the first Ctrl-C be raised by `land` alone, so that no reply is lost on its way; others stop any line."""
        usual, hit = signal.getsignal(signal.SIGINT), False

        def first(*_: Any) -> None:
            nonlocal hit
            hit = True
            signal.signal(signal.SIGINT, usual)
            self._landed.put(None)

        if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGINT, first)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, usual)
        if hit:  # after the last landing
            raise KeyboardInterrupt
