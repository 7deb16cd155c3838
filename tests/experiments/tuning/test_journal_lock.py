"""A journal that another process locks is named while it is waited for; what a killed process leaves locks nothing."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from filelock import FileLock

from atwu.experiments.tuning.run_search import JournalLock


def test_waiting_for_a_lock_is_announced(tmp_path: Path) -> None:
    place = str(tmp_path / "search.journal")
    other, lock = FileLock(f"{place}.lock"), JournalLock(place, after=0.0)
    announced: list[str] = []

    class Releases(logging.Handler):
        """The other command ends as soon as it was waited for."""

        def emit(self, record: logging.LogRecord) -> None:
            announced.append(record.getMessage())
            other.release()

    logger, handler = logging.getLogger("atwu.experiments.tuning.run_search"), Releases()
    logger.addHandler(handler)
    try:
        other.acquire()
        assert lock.acquire()
    finally:
        logger.removeHandler(handler)
    assert announced == [f"warning: {place}.lock is held by another command; waiting for it"]
    lock.release()


def _hold(place: str, ready: Connection) -> None:
    JournalLock(place).acquire()
    ready.send(True)
    threading.Event().wait()


def test_a_lock_ends_with_its_process(tmp_path: Path, caplog) -> None:
    place = str(tmp_path / "search.journal")
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    process = spawning.Process(target=_hold, args=(place, there))
    process.start()
    here.recv()
    process.kill()
    process.join()
    lock = JournalLock(place)
    assert lock.acquire()
    lock.release()
    assert not caplog.records
