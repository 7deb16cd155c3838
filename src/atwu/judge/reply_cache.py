"""Cache of model replies: one SQLite file, safe for concurrent processes and threads and for interruptions.

The key of a reply contains everything that can change it, but no timeouts or retry counts. Stored are replies (which
may quote facts from the judged texts), token counts and server fields; of conversations only a hash, and no API keys.
The file is readable by the user only; to clear the cache, delete it with its -wal and -shm files.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from atwu._cache import cache_folder, short_hash
from atwu.judge.chat_model import ChatRequest

logger = logging.getLogger(__name__)

_PATIENCE = 60.0
"""Maximum seconds to wait for other writers."""
_TEST_BYTES = 1 << 16
"""Size of the test row; the space remains reserved for replies."""
_LOOK_UP = 500
"""Keys per query, since SQLite limits the number of parameters."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class CacheError(OSError):
    """The cache cannot be read or written; the message names the file and the next step."""


def default_path() -> Path:
    """Return the default path of the cache."""
    return cache_folder() / "judge.sqlite"


def reply_key(request: ChatRequest, *, identity: Mapping[str, Any], version: str) -> str:
    """Return the key of a reply."""
    return short_hash(
        {
            "model": dict(identity),
            "rubric": version,
            "messages": [[message.role, message.content] for message in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
        }
    )


class ReplyCache:
    """Replies on disk. Must be on a local disk: SQLite's write-ahead log does not work over a network."""

    def __init__(self, path: str | Path) -> None:
        """Open or create the cache.

        Raises:
            CacheError: The file is damaged, is not a cache, or cannot be opened and written to.
        """
        self.path = Path(path)
        self._lock = threading.Lock()
        self._process = os.getpid()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # SQLite's -wal and -shm files take over the mode
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
            self._connection = sqlite3.connect(
                self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise self._failure(error) from error
        try:
            self._execute("PRAGMA journal_mode=WAL")
            self._execute("PRAGMA synchronous=NORMAL")
            self._execute(
                "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, value TEXT NOT NULL, created REAL NOT NULL)"
            )
            self._execute("SELECT key, value, created FROM replies LIMIT 1")
            self._execute("CREATE TABLE IF NOT EXISTS checks (id INTEGER PRIMARY KEY, content BLOB)")
            self.check()
        except CacheError:
            self._connection.close()
            raise

    def get_many(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the stored values of keys; damaged ones are removed with a warning."""
        wanted = list(dict.fromkeys(keys))
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(wanted), _LOOK_UP):
            part = wanted[start : start + _LOOK_UP]
            marks = ",".join("?" * len(part))
            rows = self._execute(f"SELECT key, value FROM replies WHERE key IN ({marks})", part)
            for key, stored in rows:
                value = _read(key, stored)
                if value is not None:
                    found[key] = value
                    continue
                logger.warning("warning: %s: the reply %s is damaged and will be requested again", self.path, key)
                self._execute("DELETE FROM replies WHERE key = ?", [key])
        return found

    def put(self, key: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Store a value durably.

        Returns:
            The stored value. The first value of a key is kept, so that concurrent processes continue with the same
            reply.
        """
        self.get_many([key])  # removes a damaged value, which INSERT OR IGNORE would keep
        self._execute(
            "INSERT OR IGNORE INTO replies (key, value, created) VALUES (?, ?, ?)",
            [key, _written(key, value), time.time()],
        )
        return self.get_many([key])[key]

    def count(self) -> int:
        """Return the number of stored replies."""
        return int(self._execute("SELECT count(*) FROM replies")[0][0])

    def check(self) -> None:
        """Write and delete a test row, so that no reply is paid for that cannot be stored.

        Raises:
            CacheError: The disk is full or not writable.
        """
        self._execute("INSERT OR REPLACE INTO checks (id, content) VALUES (?, zeroblob(?))", [os.getpid(), _TEST_BYTES])
        self._execute("DELETE FROM checks WHERE id = ?", [os.getpid()])

    def close(self) -> None:
        """Close the file; the cache cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def _execute(self, statement: str, values: list[Any] | None = None) -> list[Any]:
        """Run one statement in its own transaction."""
        if self._process != os.getpid():  # SQLite's locks do not survive a fork, and the file could be damaged
            raise CacheError(f"{self.path}: opened before a fork; open the cache in the process that uses it.")
        deadline = time.monotonic() + _PATIENCE
        with self._lock:
            while True:
                try:
                    return self._connection.execute(statement, values or []).fetchall()
                except sqlite3.Error as error:
                    # SQLite's own timeout does not cover the switch to WAL and its recovery.
                    if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                        raise self._failure(error) from error
                time.sleep(0.01)

    def _failure(self, error: Exception) -> CacheError:
        if _code(error) in _DAMAGED:
            return CacheError(
                f"{self.path}: not a readable cache of replies ({error}). Nothing was deleted: recover it with "
                f"`sqlite3 {self.path.name} .recover`, or move it away to start with an empty cache, which requests every "
                f"reply again."
            )
        return CacheError(
            f"{self.path}: cannot be used as a cache of replies ({error}). Check that the file is such a cache, that "
            f"its folder is writable and that the disk is not full, or use another file."
        )


def _written(key: str, value: Mapping[str, Any]) -> str:
    """Serialize a value, with a hash of value and key."""
    text = json.dumps(dict(value), sort_keys=True)
    return f"{short_hash([key, text])} {text}"


def _read(key: str, stored: object) -> dict[str, Any] | None:
    """Parse a stored value; None if it is damaged."""
    hashed, _, text = str(stored).partition(" ")
    if hashed != short_hash([key, text]):
        return None
    try:
        value: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return value


def _code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 for other errors."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
