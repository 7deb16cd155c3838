"""Find the files of a published data set, and verify them against its published rows and columns.

Files are read from the folder in the environment variable ATWU_DATA (its sub-folder named after the data set, or the
folder itself), one .jsonl or .json file per table, or from the Hub if ATWU_DATA is not set. Each table is checked when
read. A table `CONFIG/SPLIT` is that split on the Hub, and a file in the sub-folder CONFIG.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from atwu.data.records import Record, file_records, hub_records

DATA_VARIABLE = "ATWU_DATA"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    rows: int | None
    """Number of rows; None if it is not checked."""
    columns: tuple[str, ...]
    """Columns that hold text or a list in every row."""
    lists: Mapping[str, int] = field(default_factory=dict)
    """Column that holds a list -> number of entries."""
    on_hub: bool = True
    """False if it must be in a folder."""


@dataclass(frozen=True, slots=True)
class DataSet:
    name: str
    hub: str
    """Repository name on the Hub, or where to get the files if no table is on the Hub."""
    tables: Mapping[str, PublishedFile]
    split: str | None = None
    """Split of every configuration that names none; None if there is only one."""
    from_hub: Callable[[str], Iterable[Record]] | None = None
    """Reads a table from the Hub, if it is stored in another form there."""
    part: str = ""
    """Sub-folder of its folder with the tables, for a data set of several parts."""
    exact: bool = True
    """Refuse a table with another number of rows; False: `Tables.incomplete` describes it."""


@dataclass(slots=True)
class Tables:
    """One copy of a data set, in a folder or (None) on the Hub; each table is read and checked once."""

    published: DataSet
    folder: Path | None = None
    _read: dict[str, tuple[Record, ...]] = field(default_factory=dict, init=False)

    def has(self, name: str) -> bool:
        # The Hub is not asked: a table that is not there is known beforehand.
        path = self._path(name)
        if path is None:
            return self.published.tables[name].on_hub
        return path.is_file()

    def first(self, name: str, count: int) -> tuple[Record, ...]:
        """Return at most `count` records from the start of a table; the others are not read, nor their number checked."""
        # The largest corpus of WMDP has 2 GB.
        records = tuple(islice(self._records(name), count))
        self._check_columns(name, records)
        return records

    def table(self, name: str) -> tuple[Record, ...]:
        if name not in self._read:
            records = tuple(self._records(name))
            expected = self.published.tables[name].rows
            if self.published.exact and expected not in (None, len(records)):
                hub = ":".join(part for part in (self.published.hub, name, self.published.split) if part)
                raise ValueError(
                    f"{self._path(name) or hub}: found {len(records)} rows, expected {expected}; get the table again."
                )
            self._check_columns(name, records)
            self._read[name] = records
        return self._read[name]

    def incomplete(self) -> tuple[str, ...]:
        """Describe the tables read so far that differ in size from those published."""
        sentences = []
        for name, records in self._read.items():
            rows, expected = len(records), self.published.tables[name].rows
            # The published number is not known of every table.
            if expected not in (None, rows):
                sentences.append(
                    f"{name}: {rows} rows instead of the {expected} published; not comparable with published numbers"
                )
        return tuple(sentences)

    def ignored(self) -> tuple[str, ...]:
        """Describe unknown columns of the tables read so far, one sentence per table."""
        known = {column for published in self.published.tables.values() for column in published.columns}
        sentences = []
        for name, records in self._read.items():
            unknown = {str(column) for _, columns in records for column in columns} - known
            if unknown:
                sentences.append(f"{name}: ignored columns: {', '.join(sorted(unknown))}")
        return tuple(sentences)

    def _path(self, name: str) -> Path | None:
        """Return the file of a table, .json if it exists, else .jsonl; None on the Hub."""
        if self.folder is None:
            return None
        # Data sets are published in both forms: .json holds one list, .jsonl one row a line.
        listed = self.folder / f"{name}.json"
        if listed.is_file():
            return listed
        return self.folder / f"{name}.jsonl"

    def _records(self, name: str) -> Iterable[Record]:
        data, path, on_hub = self.published, self._path(name), self.published.tables[name].on_hub
        if path is None and on_hub and data.from_hub is not None:
            return data.from_hub(name)
        if path is None and on_hub:
            # A table is CONFIG or CONFIG/SPLIT, as on the Hub.
            because = f"{DATA_VARIABLE} is not set, so {data.name} is taken from the Hub ({data.hub})"
            config, _, split = name.partition("/")
            return hub_records(data.hub, config, split or data.split, because=because)
        if path is None:
            raise FileNotFoundError(
                f"the table {name} of {data.name} is not on the Hub; put it into a folder {data.name.lower()} (from "
                f"{data.hub}) and set {DATA_VARIABLE} to the folder above it."
            )
        if not path.is_file():
            rows, hub = "rows", ""
            if data.tables[name].rows is not None:
                rows = f"{data.tables[name].rows} rows"
            if on_hub:
                hub = f", or unset {DATA_VARIABLE} to take {data.name} from the Hub ({data.hub})"
            raise FileNotFoundError(f"{path} does not exist; put the {rows} of {name} there{hub}.")
        return file_records(path)

    def _check_columns(self, name: str, records: Iterable[Record]) -> None:
        expected = self.published.tables[name]
        for where, columns in records:
            missing = [column for column in expected.columns if not isinstance(columns.get(column), str | list)]
            if missing:
                raise ValueError(
                    f"{where}: found the columns {', '.join(columns)}, expected {', '.join(expected.columns)} (nothing "
                    f"in {', '.join(missing)}); get the table again."
                )
            for column, length in expected.lists.items():
                entries = columns[column]
                if isinstance(entries, list) and len(entries) == length:
                    continue
                shown = repr(entries)[:60]
                if isinstance(entries, list):
                    shown = f"{len(entries)} entries"
                raise ValueError(
                    f"{where}, column {column!r}: found {shown}, expected a list of {length}; get the table again."
                )


def open_tables(published: DataSet) -> Tables:
    """Open the copy in ATWU_DATA, or the Hub's if ATWU_DATA is not set."""
    folder = local_folder(published)
    # Whoever sets the variable wants the files in it, not a download.
    if folder is None and os.environ.get(DATA_VARIABLE):
        raise FileNotFoundError(
            f"{DATA_VARIABLE} is {os.environ[DATA_VARIABLE]}, but neither {' nor '.join(map(str, _places(published)))} has a "
            f"file of {published.name}, such as {next(iter(published.tables))}.jsonl; put the files there, or unset "
            f"{DATA_VARIABLE} to load {published.name} from the Hub ({published.hub})."
        )
    return Tables(published, folder)


def local_folder(published: DataSet) -> Path | None:
    """Return the folder in ATWU_DATA that has a table of a data set; None without one, or if ATWU_DATA is not set."""
    for folder in _places(published):
        if any(file.is_file() for name in published.tables for file in folder.glob(f"{name}.json*")):
            return folder
    return None


def _places(published: DataSet) -> list[Path]:
    named = os.environ.get(DATA_VARIABLE)
    if not named:
        return []
    # The folder that holds several data sets, or that of this one.
    root = Path(named).expanduser()
    return [folder / published.part for folder in (root / published.name.lower(), root)]
