"""A source name into checked rows: a file, the embedded benchmark, or a Hub data set.

`load_rows("forget.jsonl")`, `load_rows("people:tiny:forget")`, `load_rows("locuslab/TOFU:forget10")`. Nothing is
dropped silently: what is odd but usable (duplicates, columns that are not read) comes back as a counted warning.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from atwu._extras import require
from atwu.data.people import SPLITS, people
from atwu.data.readers import READERS, Record
from atwu.data.rows import fingerprint, ignored_columns, parse_row
from atwu.data.schema import Example

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_SOURCES = (
    f"a {', '.join(READERS)} file, people:SIZE:SPLIT (splits {', '.join(SPLITS)}), "
    "or a Hub data set org/name[:config[:split]]"
)


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """Rows of one source."""

    rows: tuple[Example, ...]
    source: str
    """The source as it was given."""
    warnings: tuple[str, ...]
    """What a reader should know, one sentence each: ignored columns, duplicate rows."""
    fingerprint: str
    """Sha256 over the canonical JSON of the rows."""


def load_rows(source: str | Path, *, limit: int | None = None) -> LoadedRows:
    """Load and check the rows of a source.

    Args:
        source: a file (.jsonl, .json, .csv, .parquet), `people:SIZE:SPLIT`, or a Hub data set
            `org/name[:config[:split]]`.
        limit: read at most this many rows, from the first on; rows after them are not checked.

    Returns:
        The rows with warnings and a fingerprint.

    Raises:
        FileNotFoundError: the source looks like a file that does not exist; near matches are named.
        ValueError: unknown source, empty source, or a malformed row, with file, line or row, and column.
        ImportError: the source needs an extra that is not installed.
    """
    name = str(source)
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}; leave it out to read every row.")
    ignored: set[str] = set()
    if not isinstance(source, Path) and name.startswith("people:"):
        rows = _people_rows(name)[:limit]
    else:
        path = Path(name).expanduser()
        records = _file_records(path) if _is_file_name(source, path) else _hub_records(name)
        parsed = []
        for where, obj in islice(records, limit):
            parsed.append(parse_row(obj, where=where))
            ignored |= ignored_columns(obj)
        rows = tuple(parsed)
    if not rows:
        raise ValueError(f"{name} is empty: it holds no rows; expected at least one.")
    return LoadedRows(rows=rows, source=name, warnings=_warnings(rows, ignored), fingerprint=fingerprint(rows))


def _warnings(rows: tuple[Example, ...], ignored: set[str]) -> tuple[str, ...]:
    warnings = []
    if ignored:
        warnings.append(f"ignored columns: {', '.join(sorted(ignored))}")
    repeats = len(rows) - len(set(rows))
    if repeats:
        warnings.append(f"duplicate rows: {repeats} of {len(rows)} repeat an earlier row exactly (kept)")
    return tuple(warnings)


def _is_file_name(source: str | Path, path: Path) -> bool:
    if isinstance(source, Path) or path.suffix.lower() in READERS:
        return True
    return source.startswith(("/", "./", "../", "~")) or (bool(source) and path.exists())


def _file_records(path: Path) -> Iterator[Record]:
    if not path.exists():
        raise FileNotFoundError(_missing_file(path))
    if path.is_dir():
        inside = sorted(item.name for item in path.iterdir() if item.suffix.lower() in READERS)
        raise ValueError(f"{path} is a folder; give one file{' of: ' + ', '.join(inside) if inside else ''}.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: file type {path.suffix or '(none)'!r} is not read; use {', '.join(READERS)}.")
    return reader(path)


def _missing_file(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{path} does not exist, nor does its folder {folder}; check the path."
    names = sorted(item.name for item in folder.iterdir())
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    near = near or [name for name in names if Path(name).suffix.lower() in READERS][:3]
    return f"{path} does not exist; near matches in {folder}: {', '.join(near) or 'none'}."


def _people_rows(name: str) -> tuple[Example, ...]:
    parts = name.split(":")
    if len(parts) != 3 or parts[2] not in SPLITS:
        raise ValueError(f"{name!r} is not people:SIZE:SPLIT; the splits are {', '.join(SPLITS)}.")
    return tuple(people(parts[1]).split(parts[2]))


def _hub_records(name: str) -> Iterator[Record]:
    repository, *selection = name.split(":")
    if not _HUB_NAME.fullmatch(repository) or len(selection) > 2 or not all(selection):
        raise ValueError(f"{name!r} is not a known source and no such file exists; give {_SOURCES}.")
    config, split = [*selection, None, None][:2]
    try:
        datasets = require("datasets", extra="hub")
    except ImportError as error:
        raise ImportError(f"{name!r} is not a file here, so it was taken as a Hub data set; {error}") from error
    table: Any = datasets.load_dataset(repository, config, split=split)
    if split is None:
        splits = list(table)
        if len(splits) != 1:
            raise ValueError(
                f"{name!r} has the splits {', '.join(splits)}; name one, as in {repository}:{config or 'default'}:"
                f"{splits[0] if splits else 'train'}."
            )
        table = table[splits[0]]
    for number, obj in enumerate(table, start=1):
        yield f"{name}, row {number}", obj
