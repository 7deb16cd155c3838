"""Store of model replies: one SQLite file that several processes and threads use at once and that survives a kill.

A reply is found by everything that can change it and by nothing else (no timeouts, no retry counts). Stored are the
replies, which may quote facts from the texts that were judged, their token counts and what the server said about itself;
conversations are not, only their hash, and no keys. Only the user may read the file; deleting it, with its -wal and -shm
neighbours, forgets everything.
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
"""Seconds to wait for other writers."""
_TEST_BYTES = 1 << 16
"""Size of the test row; the space stays reserved for replies."""
_LOOK_UP = 500
"""Keys per query; SQLite limits the number of parameters."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class CacheError(OSError):
    """The store cannot be read or written; the text names the file and the next step."""


def default_path() -> Path:
    """Where replies are kept if nothing else is said."""
    return cache_folder() / "judge.sqlite"


def reply_key(request: ChatRequest, *, identity: Mapping[str, Any], version: str) -> str:
    """Key of a reply."""
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
    """Replies on disk. The folder must be on a local disk: SQLite's write-ahead log does not work over a network."""

    def __init__(self, path: str | Path) -> None:
        """Open the store, or make an empty one.

        Raises:
            CacheError: the file is damaged, is not ours, or cannot be opened and written to.
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
        """Values of those keys that are stored; a damaged one is named in a warning and removed."""
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
                logger.warning("warning: %s: the reply %s is damaged; it is asked for again", self.path, key)
                self._execute("DELETE FROM replies WHERE key = ?", [key])
        return found

    def put(self, key: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Store a value; a kill does not lose it once this has returned.

        Returns:
            What is stored under the key. The first value stays, so that two processes which asked the same at the
            same time go on with the same reply.
        """
        self.get_many([key])  # removes a damaged one, which would stay
        self._execute(
            "INSERT OR IGNORE INTO replies (key, value, created) VALUES (?, ?, ?)",
            [key, _written(key, value), time.time()],
        )
        return self.get_many([key])[key]

    def count(self) -> int:
        """Number of stored replies."""
        return int(self._execute("SELECT count(*) FROM replies")[0][0])

    def check(self) -> None:
        """Write something and take it back, so that nothing is paid for that cannot be stored.

        Raises:
            CacheError: the disk is full or cannot be written to.
        """
        self._execute("INSERT OR REPLACE INTO checks (id, content) VALUES (?, zeroblob(?))", [os.getpid(), _TEST_BYTES])
        self._execute("DELETE FROM checks WHERE id = ?", [os.getpid()])

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def _execute(self, statement: str, values: list[Any] | None = None) -> list[Any]:
        """Run one statement in a transaction of its own."""
        if self._process != os.getpid():  # SQLite's locks do not survive a fork, and the file could be damaged
            raise CacheError(f"{self.path}: opened before a fork; open the store in the process that uses it.")
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
                f"{self.path}: not a readable store of replies ({error}). Nothing was deleted: rescue it with "
                f"`sqlite3 {self.path.name} .recover`, or move it away to begin an empty one, for which every reply "
                f"must be asked for again."
            )
        return CacheError(
            f"{self.path}: cannot be used as a store of replies ({error}). Check that it is a store made here, that "
            f"you may write to its folder and that the disk is not full, or name another file."
        )


def _written(key: str, value: Mapping[str, Any]) -> str:
    """A value as it is stored: a hash of it with its key, and the value."""
    text = json.dumps(dict(value), sort_keys=True)
    return f"{short_hash([key, text])} {text}"


def _read(key: str, stored: object) -> dict[str, Any] | None:
    """The value that was stored, or None if it is not as it was written."""
    hashed, _, text = str(stored).partition(" ")
    if hashed.startswith("{"):  # paid for and stored before there were hashes
        hashed, text = short_hash([key, str(stored)]), str(stored)
    if hashed != short_hash([key, text]):
        return None
    try:
        value: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return value


def _code(error: Exception) -> int:
    """SQLite's primary result code; 0 for errors that are not SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
