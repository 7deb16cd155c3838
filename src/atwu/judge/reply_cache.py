"""Cache of texts that models wrote, judges' replies and generations: one SQLite file, shared by processes and threads.

The key of a text contains everything that can change it, but no timeouts or retry counts. Stored are texts (which may quote
facts), token counts and server fields; of conversations only a hash, and no API keys. The file is readable by the user only;
to clear the cache, delete it with its -wal and -shm files.
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


class CacheError(OSError):
    """The cache cannot be read or written; the message names the file and the next step."""


def default_path() -> Path:
    return cache_folder() / "replies.sqlite"


def reply_key(request: ChatRequest, identity: Mapping[str, Any]) -> str:
    return short_hash(
        {
            "model": dict(identity),
            "rubric": request.rubric,
            "messages": [[message.role, message.content] for message in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
        }
    )


class ReplyCache:
    """Texts on disk by key. Must be on a local disk: SQLite's write-ahead log does not work over a network."""

    def __init__(self, path: str | Path) -> None:
        """Open or create the cache; CacheError if the file is damaged or not a cache, or cannot be opened and written to."""
        self.path = Path(path)
        self._lock = threading.Lock()
        self._process = os.getpid()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # SQLite's -wal and -shm files take over the mode
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
            # Autocommit: Python would open transactions by itself and hold their locks. Any thread may use the connection,
            # since a notebook's calls come from another one; a lock of our own keeps them apart.
            self._connection = sqlite3.connect(
                self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise self._failure(error) from error
        # Readers do not wait for writers, and a commit does not wait for the disk: after a power cut the last texts may be
        # missing, but the file is whole.
        self._execute("PRAGMA journal_mode=WAL")
        self._execute("PRAGMA synchronous=NORMAL")
        self._execute(
            "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, value TEXT NOT NULL, created REAL NOT NULL)"
        )
        # An SQLite file of another program fails here, and not at the first reply.
        self._execute("SELECT key, value, created FROM replies LIMIT 1")

    def get_many(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the stored values of keys; damaged ones are removed with a warning."""
        values: dict[str, dict[str, Any]] = {}
        # The keys as one JSON list, since SQLite limits the number of parameters.
        query = "SELECT key, value FROM replies WHERE key IN (SELECT value FROM json_each(?))"
        for key, stored in self._execute(query, [json.dumps(list(keys))]):
            text = str(stored).partition(" ")[2]
            if stored == _prepend_hash(key, text):
                values[key] = json.loads(text)
                continue
            logger.warning("warning: %s: the text %s is damaged and will be requested again", self.path, key)
            self._execute("DELETE FROM replies WHERE key = ?", [key])
        return values

    def put_many(self, values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Store values durably, and return what is stored.

        The first value of a key is kept, so that concurrent processes continue with the same text.
        """
        # Each in a transaction of its own, so that a kill loses one text at most.
        for key, value in values.items():
            self._execute(
                "INSERT OR IGNORE INTO replies (key, value, created) VALUES (?, ?, ?)",
                [key, _prepend_hash(key, json.dumps(dict(value), sort_keys=True)), time.time()],
            )
        return self.get_many(values)

    def count(self) -> int:
        return int(self._execute("SELECT count(*) FROM replies")[0][0])

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
                    # The low byte is the code of the error, the others say more about it (SQLITE_BUSY_SNAPSHOT).
                    busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or time.monotonic() > deadline:
                        raise self._failure(error) from error
                time.sleep(0.01)

    def _failure(self, error: Exception) -> CacheError:
        return CacheError(
            f"{self.path}: cannot be used as a cache of replies ({error}). Check that its folder is writable and the disk "
            f"is not full. If the file is damaged, recover it with `sqlite3 {self.path.name} .recover`, or move it away to "
            f"start with an empty cache, which requests every reply again."
        )


def _prepend_hash(key: str, text: str) -> str:
    """Prepend a hash of key and text, by which damage is noticed."""
    return f"{short_hash([key, text])} {text}"
