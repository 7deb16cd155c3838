"""Where trials are kept: an SQLite file, a journal file, or any database that Optuna reads; and heartbeats in databases.

The default is SQLite in the output folder. Its writes are transactions and its locks die with their holder, so a process
that is killed in the middle of one leaves nothing half-written; a trial takes seconds to hours, so that several processes
hardly ever wait for each other. A journal file only ever grows by whole lines, which suits network file systems, where
SQLite's locks are not reliable.
"""

from __future__ import annotations

import functools
import logging
import random
import sqlite3
import threading
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from atwu._extras import require

logger = logging.getLogger(__name__)

FILE_NAME = "search.db"
HEARTBEAT = 30
"""Seconds between two signs of life of a running trial, in a database."""
GRACE = 120
"""Seconds of silence after which a trial of another machine is given to the next worker."""
_BUSY = 60
"""Seconds to wait for another process to finish writing to an SQLite file."""
_ATTEMPTS = 5
"""Times a database is tried; workers that begin at the same moment get into each other's way when they make its tables."""
_ESCAPES = str.maketrans({character: quote(character) for character in "%#?"})
"""What a file's name may hold and a URL takes for something else."""
_SECRETS = ("password", "sslpassword")


def storage_url(storage: str | None, folder: Path) -> str:
    """Full address of a storage: a database URL, or the path of a journal file.

    Args:
        storage: what the user gave; None for the default.
        folder: of the search.

    Raises:
        ValueError: neither a URL nor a file name that says what it is.
    """
    if storage is None:
        return _sqlite_url(folder.absolute() / FILE_NAME)
    if "://" in storage:
        scheme, _, rest = storage.partition("://")
        return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else storage
    path = Path(storage).expanduser().absolute()
    if path.suffix == ".journal":
        return str(path)
    if path.suffix in (".db", ".sqlite", ".sqlite3"):
        return _sqlite_url(path)
    raise ValueError(
        f"storage must be a file NAME.db (SQLite) or NAME.journal, or a URL such as postgresql://USER@HOST/DATABASE, "
        f"got {masked(storage)!r}."
    )


def _sqlite_url(path: Path) -> str:
    return f"sqlite:///{str(path).translate(_ESCAPES)}"


def _sqlite_path(url: str) -> str:
    """The file of an SQLite URL, with # and ? of its name; SQLAlchemy reads them so from version 2.1 on."""
    return unquote(url.partition("://")[2].partition("?")[0].partition("/")[2])


def masked(url: str) -> str:
    """A storage without its passwords, for everything that is shown or written."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    netloc = f"{name}:***@{host}" if colon else f"{user}{at}{host}"
    query = [(key, "***" if key in _SECRETS else value) for key, value in parse_qsl(parts.query, True)]
    shown = urlencode(query, quote_via=quote, safe="*/:") if query else ""
    # urlunsplit drops the empty host of sqlite:///file.
    plain = urlunsplit(("", "", parts.path, shown, parts.fragment))
    return f"{parts.scheme}://{netloc}{plain}"


def open_storage(url: str) -> Any:
    """Open an Optuna storage.

    Args:
        url: as `storage_url` returns it.

    Raises:
        ValueError: it cannot be opened.
        ImportError: Optuna or the database's driver is not installed.
    """
    optuna = require("optuna", extra="tune")
    if "://" not in url:
        journal = require("optuna.storages.journal", extra="tune")
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        return optuna.storages.JournalStorage(journal.JournalFileBackend(url))
    engine: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("sqlite"):
        engine = {"creator": functools.partial(_connect, _sqlite_path(url))}
    elif url.startswith("postgresql+psycopg://"):
        require("psycopg", extra="tune")
    errors = require("sqlalchemy.exc", extra="tune")
    for attempt in range(_ATTEMPTS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return optuna.storages.RDBStorage(
                    url, engine_kwargs=engine, heartbeat_interval=HEARTBEAT, grace_period=GRACE
                )
        except (errors.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            if attempt + 1 == _ATTEMPTS:
                first = str(error).strip().partition("\n")[0].replace(url, masked(url))
                raise ValueError(f"cannot open the storage {masked(url)}: {first}") from None
            time.sleep(random.uniform(0.2, 0.6))  # another worker may be making the tables
    raise AssertionError("unreachable")


def _connect(path: str) -> sqlite3.Connection:
    """An SQLite file with a write-ahead log: a write then takes microseconds, where it took up to a second.

    A process that is killed loses nothing by it; a machine that loses power, its last few writes at most.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_BUSY, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


class Heartbeat:
    """Signs of life of a running trial, as a context; does nothing in a journal file.

    Optuna sends them from `Study.optimize` only, and stops for good at the first that fails.

    Args:
        storage: as `open_storage` returns it.
        trial: as `Study.ask` returns it.
    """

    def __init__(self, storage: Any, trial: Any) -> None:
        self._beat = getattr(storage, "record_heartbeat", None)
        self._storage, self._id = storage, trial._trial_id
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(self._storage.heartbeat_interval):
            try:
                self._beat(self._id)  # type: ignore[misc]
            except Exception as error:  # whatever the database says: the next beat may reach it again
                logger.warning("no heartbeat could be sent (%s)", type(error).__name__)
        self._storage.remove_session()

    def __enter__(self) -> Heartbeat:
        if self._beat is not None:
            self._beat(self._id)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
