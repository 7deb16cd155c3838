"""Where finished trials are kept: an SQLite file, a journal file, or any database that Optuna reads.

The default is SQLite in the output folder. Its writes are transactions and its locks die with their holder, so a process
that is killed in the middle of one leaves nothing half-written. A journal file only ever grows by whole lines, which suits
network file systems, where SQLite's locks are not reliable.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from atwu._extras import require

FILE_NAME = "search.db"
_ESCAPES = str.maketrans({character: quote(character) for character in "%#?"})
"""What a file's name may hold and a URL takes for something else."""
_SECRETS = ("password", "sslpassword")


def storage_url(storage: str | None, folder: Path) -> str:
    """Full address of a storage: a database URL, or the path of a journal file.

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
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=engine)
    except (errors.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        first = str(error).strip().partition("\n")[0].replace(url, masked(url))
        raise ValueError(f"cannot open the storage {masked(url)}: {first}") from None


def check_storage(url: str) -> None:
    """Refuse an SQLite file that is damaged, before anything is computed.

    Raises:
        ValueError: it is; says what to do.
    """
    path = Path(_sqlite_path(url)) if url.startswith("sqlite") else None
    if path is None or not path.is_file():
        return
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise ValueError(
            f"{path} is damaged and holds no readable search ({found}); rescue it with `sqlite3 {path.name} .recover`, or "
            "move it away to begin anew."
        )


def _connect(path: str) -> sqlite3.Connection:
    """An SQLite file with a write-ahead log: a write then takes microseconds, where it took up to a second.

    A process that is killed loses nothing by it; a machine that loses power, its last few writes at most.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection
