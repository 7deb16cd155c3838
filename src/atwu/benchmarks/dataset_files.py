"""Find the files of a published data set, and verify them against its published rows and columns.

Files are read from the folder in the environment variable ATWU_DATA (its sub-folder named after the data set, or the
folder itself), one JSONL file per table, or from the Hub if ATWU_DATA is not set. Each table is checked when read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from atwu.data.records import Record, hub_records, read_jsonl_records

DATA_VARIABLE = "ATWU_DATA"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """Published shape of a table."""

    rows: int | None
    """Number of rows; None if it is not checked."""
    columns: tuple[str, ...]
    """Columns that hold text or a list in every row."""
    lists: Mapping[str, int] = field(default_factory=dict)
    """Column that holds a list -> number of entries."""
    on_hub: bool = True
    counted_on_hub: bool = True
    """Whether the number of rows is also checked on the Hub."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A published data set."""

    name: str
    hub: str
    """Repository name on the Hub."""
    tables: Mapping[str, PublishedFile]
    split: str | None = None
    """Split of every configuration; None if there is only one."""


class Tables:
    """One copy of a data set; each table is read and checked once."""

    def __init__(self, published: DataSet, folder: Path | None = None) -> None:
        """Open a copy.

        Args:
            published: the published shape of the data set.
            folder: folder of the JSONL files; None for the Hub.
        """
        self.published = published
        self.folder = folder
        self._read: dict[str, tuple[Record, ...]] = {}

    def has(self, name: str) -> bool:
        """Whether the copy contains a table."""
        path = self._path(name)
        return self.published.tables[name].on_hub if path is None else path.is_file()

    def expected_rows(self, name: str) -> int | None:
        """Required number of rows of a table, or None if it is not checked."""
        expected = self.published.tables[name]
        return expected.rows if self.folder is not None or expected.counted_on_hub else None

    def table(self, name: str) -> tuple[Record, ...]:
        """Return the records of a table.

        Raises:
            FileNotFoundError: the folder lacks the file.
            ValueError: rows, columns or lists differ from those published, or the Hub does not answer.
        """
        if name not in self._read:
            records = self._records(name)
            self._check(name, records)
            self._read[name] = records
        return self._read[name]

    def ignored(self) -> tuple[str, ...]:
        """Describe unknown columns of the tables read so far, one sentence per table."""
        known = {column for published in self.published.tables.values() for column in published.columns}
        ignored = {
            name: sorted({str(column) for _, columns in records for column in columns} - known)
            for name, records in self._read.items()
        }
        return tuple(f"{name}: ignored columns: {', '.join(found)}" for name, found in ignored.items() if found)

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{name}.jsonl"

    def _records(self, name: str) -> tuple[Record, ...]:
        data, path = self.published, self._path(name)
        if path is None:
            because = f"{DATA_VARIABLE} is not set, so {data.name} is taken from the Hub ({data.hub})"
            return tuple(hub_records(data.hub, name, data.split, because=because))
        if not path.is_file():
            rows = data.tables[name].rows
            raise FileNotFoundError(
                f"{path} does not exist; put the {'' if rows is None else f'{rows} '}rows of {name} there, or unset "
                f"{DATA_VARIABLE} to take {data.name} from the Hub ({data.hub})."
            )
        return tuple(read_jsonl_records(path))

    def _check(self, name: str, records: tuple[Record, ...]) -> None:
        expected, rows = self.published.tables[name], self.expected_rows(name)
        source = self.published.hub
        advice = f"download the file again from {source}" if expected.on_hub else "get the file of the same split again"
        if rows is not None and len(records) != rows:
            place = self._path(name) or ":".join(part for part in (source, name, self.published.split) if part)
            raise ValueError(f"{place}: found {len(records)} rows, expected {rows}; {advice}.")
        for where, columns in records:
            missing = [column for column in expected.columns if not isinstance(columns.get(column), str | list)]
            if missing:
                raise ValueError(
                    f"{where}: found the columns {', '.join(columns)}, expected {', '.join(expected.columns)} (nothing "
                    f"in {', '.join(missing)}); {advice}."
                )
            for column, length in expected.lists.items():
                given = columns[column]
                if not isinstance(given, list) or len(given) != length:
                    found = f"{len(given)} entries" if isinstance(given, list) else repr(given)[:60]
                    raise ValueError(
                        f"{where}, column {column!r}: found {found}, expected a list of {length}; {advice}."
                    )


def open_tables(published: DataSet) -> Tables:
    """Open the copy in ATWU_DATA, or the Hub's if ATWU_DATA is not set.

    Raises:
        FileNotFoundError: the folder has no table of the data set.
    """
    given = os.environ.get(DATA_VARIABLE)
    if not given:
        return Tables(published)
    root = Path(given).expanduser()
    nested = root / published.name.lower()
    for folder in (nested, root):
        if any((folder / f"{name}.jsonl").is_file() for name in published.tables):
            return Tables(published, folder)
    raise FileNotFoundError(
        f"{DATA_VARIABLE} is {given}, but neither {nested} nor {root} has a file of {published.name}, such as "
        f"{next(iter(published.tables))}.jsonl; put the files there, or unset {DATA_VARIABLE} to load "
        f"{published.name} from the Hub ({published.hub})."
    )
