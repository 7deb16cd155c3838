"""The lock of a search's journal file, which says what it waits for.

The operating system ends it with its process. Optuna's own locks are a link or a file beside the journal: a killed process
leaves them for the next one to wait half a minute, and Windows creates no link without a privilege.
"""

from __future__ import annotations

import logging

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)

_SILENT_SECONDS = 2.0
"""A lock is held for one write, some milliseconds; on a slow network folder for some more."""


class JournalLock:
    """Lock of a journal, for Optuna's `JournalFileBackend`; warns when it waits long.

    Args:
        journal: path of the journal; the lock is the file `JOURNAL.lock`.
        after: seconds of waiting until the warning.
    """

    def __init__(self, journal: str, *, after: float = _SILENT_SECONDS) -> None:
        self._lock, self._after = FileLock(f"{journal}.lock"), after

    def acquire(self) -> bool:
        try:
            self._lock.acquire(timeout=self._after)
        except Timeout:
            logger.warning("warning: %s is held by another command; waiting for it", self._lock.lock_file)
            self._lock.acquire(timeout=-1)
        return True

    def release(self) -> None:
        self._lock.release()
