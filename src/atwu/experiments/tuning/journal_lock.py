"""The lock of a search's journal file, which says what it waits for.

Optuna locks a journal by a link beside it. One that a killed process left is taken over after half a minute, until when
Optuna says nothing.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

logger = logging.getLogger(__name__)

_SILENT_SECONDS = 2.0
"""A lock is held for one write, some milliseconds; on a slow network folder for some more."""


class AnnouncedLock:
    """Lock of Optuna (`JournalFileSymlinkLock`) that warns when it waits long.

    Args:
        lock: the lock, of the file `LOCKED.lock`.
        locked: path of the journal.
        after: seconds of waiting until the warning.
    """

    def __init__(self, lock: Any, locked: str, *, after: float = _SILENT_SECONDS) -> None:
        self._lock, self._locked, self._after = lock, locked, after

    def acquire(self) -> bool:
        timer = threading.Timer(self._after, self._announce)
        timer.daemon = True
        timer.start()
        try:
            return bool(self._lock.acquire())
        finally:
            timer.cancel()

    def release(self) -> None:
        self._lock.release()

    def _announce(self) -> None:
        logger.warning(
            "warning: %s.lock is held by another command, or was left by one that was killed; waiting for it, and taking it "
            "over after %s seconds without a change",
            self._locked,
            self._lock.grace_period,
        )
