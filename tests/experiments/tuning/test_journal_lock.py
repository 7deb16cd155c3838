"""A journal that another process locks, or that a killed one left locked, is named while it is waited for."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from atwu.experiments.tuning.journal_lock import AnnouncedLock

journal = pytest.importorskip("optuna.storages.journal")


def test_waiting_for_a_lock_is_announced(tmp_path: Path) -> None:
    place = str(tmp_path / "search.journal")
    os.symlink(place, f"{place}.lock")
    lock = AnnouncedLock(journal.JournalFileSymlinkLock(place), place, after=0.0)
    announced: list[str] = []

    class Removes(logging.Handler):
        """The other process ends as soon as it was waited for."""

        def emit(self, record: logging.LogRecord) -> None:
            announced.append(record.getMessage())
            os.unlink(f"{place}.lock")

    logger, handler = logging.getLogger("atwu.experiments.tuning.journal_lock"), Removes()
    logger.addHandler(handler)
    try:
        assert lock.acquire()
    finally:
        logger.removeHandler(handler)
    assert f"{place}.lock is held by another command, or was left by one that was killed" in announced[0]
    lock.release()
    assert not os.path.lexists(f"{place}.lock")
