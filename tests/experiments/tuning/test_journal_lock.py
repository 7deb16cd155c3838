"""A journal that another process locks is named while it is waited for; what a killed process leaves locks nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from atwu.experiments.run_search import JournalLock


def test_waiting_for_a_lock_is_announced(tmp_path: Path) -> None:
    place = str(tmp_path / "search.journal")
    other, lock = FileLock(f"{place}.lock"), JournalLock(place, after=0.0)
    announced: list[str] = []

    class Releases(logging.Handler):
        """The other command ends as soon as it was waited for."""

        def emit(self, record: logging.LogRecord) -> None:
            announced.append(record.getMessage())
            other.release()

    logger, handler = logging.getLogger("atwu.experiments.run_search"), Releases()
    logger.addHandler(handler)
    try:
        other.acquire()
        assert lock.acquire()
    finally:
        logger.removeHandler(handler)
    assert announced == [f"warning: {place}.lock is held by another command; waiting for it"]
    lock.release()


HOLD = "import sys; from filelock import FileLock; FileLock(sys.argv[1]).acquire(); print('held', flush=True); sys.stdin.read()"


def test_a_lock_ends_with_its_process(tmp_path: Path, caplog) -> None:
    place = str(tmp_path / "search.journal")
    command = [sys.executable, "-c", HOLD, f"{place}.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.kill()
        process.wait()
        lock = JournalLock(place)
        assert lock.acquire()
    lock.release()
    assert not caplog.records
