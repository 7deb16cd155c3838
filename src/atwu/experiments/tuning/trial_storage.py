"""Storage of finished trials: an SQLite file, a journal file, or any database that Optuna supports.

The default is SQLite in the output folder. Its writes are transactions and its locks end with their process, so a kill
leaves no partial write. A journal file is append-only, which suits network file systems, where SQLite's locks are
unreliable.
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
"""Characters allowed in file names that have a special meaning in a URL."""
_SECRETS = ("password", "sslpassword")


def storage_url(storage: str | None, folder: Path) -> str:
    """Return the full URL of a storage, or the path of a journal file."""
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
    """Return the file of an SQLite URL, with # and ? of its name; SQLAlchemy 2.1 and later read them this way."""
    return unquote(url.partition("://")[2].partition("?")[0].partition("/")[2])


def masked(url: str) -> str:
    """Remove passwords from a storage URL, for messages and files."""
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
    """Open an Optuna storage."""
    optuna = require("optuna", extra="tune")
    if "://" not in url:
        journal = require("optuna.storages.journal", extra="tune")
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        try:
            return optuna.storages.JournalStorage(journal.JournalFileBackend(url))
        except OSError:
            raise
        except Exception as error:  # what parsing a line raises, or applying one of another program
            raise ValueError(
                f"{url} is damaged and contains no readable search ({type(error).__name__}: {error}); restore it, or move it "
                "away to start again."
            ) from error
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
    """Reject a damaged SQLite file, before any work starts."""
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
            f"{path} is damaged and contains no readable search ({found}); recover it with `sqlite3 {path.name} "
            ".recover`, or move it away to start again."
        )


def _connect(path: str) -> sqlite3.Connection:
    """Open an SQLite file with a write-ahead log, where a write takes microseconds instead of up to a second.

    Nothing is lost if a process is killed; a power failure loses at most the last few writes.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection
