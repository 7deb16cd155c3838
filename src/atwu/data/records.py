"""Read files (JSONL, JSON, CSV, Parquet, Arrow) and Hub datasets as raw records with their location.

A reader yields (where, columns) pairs and checks only the file format; `atwu.data.row_parsing` checks the columns. Only
`\\n` and `\\r\\n` end a line: U+2028, U+2029 and U+0085 are ordinary characters inside a string.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from atwu._extras import require
from atwu._file_reading import decoded, file_lines, file_text, parse_json

_BATCH = 1024
Record = tuple[str, Mapping[str, Any]]
"""Location of the record (file and line or row) and its columns."""


def read_jsonl_records(path: Path) -> Iterator[Record]:
    """Read one JSON object per line; blank lines are skipped."""
    for number, line in enumerate(file_lines(path), start=1):
        where = f"{path}, line {number}"
        text = decoded(line.removesuffix(b"\n"), path, first_line=number).rstrip("\r")
        if not text.strip(" \t"):
            continue
        value = parse_json(text, what=path, first_line=number)
        if not isinstance(value, dict):
            hint = " If the file is one JSON list, name it .json." if isinstance(value, list) else ""
            raise ValueError(f"{where}: expected one JSON object per line, got {text[:60]!r}.{hint}")
        yield where, value


def read_json_records(path: Path) -> Iterator[Record]:
    """Read a JSON list of objects."""
    text = file_text(path)
    if not text.strip():
        return
    value = parse_json(text, what=path)
    if isinstance(value, dict):
        lists = [key for key, item in value.items() if isinstance(item, list)]
        hint = f" It has a list under {lists[0]!r}; save only that list." if len(lists) == 1 else ""
        raise ValueError(f"{path}: expected a list of objects, got one object.{hint} One object per line is .jsonl.")
    if not isinstance(value, list):
        raise ValueError(f"{path}: expected a list of objects, got {text.strip()[:60]!r}.")
    for number, item in enumerate(value, start=1):
        where = f"{path}, row {number}"
        if not isinstance(item, dict):
            raise ValueError(f"{where}: expected an object with columns, got {json.dumps(item)[:60]}.")
        yield where, item


def read_csv_records(path: Path) -> Iterator[Record]:
    """Read separated values with a header; an empty cell is a missing value. Row 1 follows the header.

    The separator is the one of comma, semicolon and tab that the header has most of.
    """
    text = file_text(path)
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header: list[str] | None = None
    number = 0
    try:
        for cells in reader:
            if not cells:
                continue
            if header is None:
                header = [name.strip() for name in cells]
                _check_different(header, path)
                continue
            number += 1
            where = f"{path}, row {number}"
            if len(cells) != len(header):
                raise ValueError(
                    f"{where} (ends on line {reader.line_num}): {len(cells)} fields, the header has {len(header)} "
                    f"({', '.join(header)}); quote text that contains {separator!r}."
                )
            yield where, {name: cell or None for name, cell in zip(header, cells, strict=True)}
    except csv.Error as error:
        raise ValueError(f"{path}, row {number + 1} (line {reader.line_num}): not valid CSV, {error}.") from error


def read_parquet_records(path: Path) -> Iterator[Record]:
    """Read Parquet with pyarrow (extra `parquet`)."""
    parquet = require("pyarrow.parquet", extra="parquet")
    arrow = require("pyarrow", extra="parquet")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            _check_different(file.schema_arrow.names, path)
            for batch in file.iter_batches(batch_size=_BATCH):
                for item in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", item
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, after row {number}: cannot be read as Parquet, {error}.") from error


def read_arrow_records(path: Path) -> Iterator[Record]:
    """Read Arrow's file or stream format, in which `datasets` saves and caches, with pyarrow (extra `parquet`)."""
    ipc = require("pyarrow.ipc", extra="parquet")
    arrow = require("pyarrow", extra="parquet")
    number = 0
    try:
        with arrow.memory_map(str(path)) as file:
            try:
                opened = ipc.open_file(file)
                schema = opened.schema
                batches = (opened.get_batch(index) for index in range(opened.num_record_batches))
            except arrow.ArrowInvalid:
                file.seek(0)
                stream = ipc.open_stream(file)
                schema, batches = stream.schema, iter(stream)
            _check_different(schema.names, path)
            for batch in batches:
                for begin in range(0, len(batch), _BATCH):
                    for item in batch.slice(begin, _BATCH).to_pylist():
                        number += 1
                        yield f"{path}, row {number}", item
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, after row {number}: cannot be read as Arrow, {error}.") from error


def _check_different(names: Sequence[str], path: Path) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{path}, header: column {repeated[0]!r} appears more than once.")


READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": read_jsonl_records,
    ".json": read_json_records,
    ".csv": read_csv_records,
    ".tsv": read_csv_records,
    ".parquet": read_parquet_records,
    ".arrow": read_arrow_records,
}
"""Reader by file name suffix."""


def file_records(path: Path) -> Iterator[Record]:
    """Read the records of a file; the suffix decides the format.

    Raises:
        FileNotFoundError: the file does not exist; the message lists similar names.
        ValueError: the path is a folder, or the file type is not supported.
    """
    if not path.exists():
        raise FileNotFoundError(_missing_file(path))
    if path.is_dir() and (path / "dataset_info.json").is_file():
        return saved_records(path)
    if path.is_dir():
        inside = sorted(item.name for item in path.iterdir() if item.suffix.lower() in READERS)
        raise ValueError(f"{path} is a folder; pass one file{' of: ' + ', '.join(inside) if inside else ''}.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: file type {path.suffix or '(none)'!r} is not supported; use {', '.join(READERS)}.")
    return reader(path)


def saved_records(folder: Path) -> Iterator[Record]:
    """Read the records of a data set that `datasets` saved with `save_to_disk`.

    Raises:
        ImportError: `datasets` is not installed.
        ValueError: the folder cannot be read.
    """
    datasets = require("datasets", extra="hub")
    try:
        table: Any = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: cannot be read as a saved data set, {error}.") from error
    return ((f"{folder}, row {number}", obj) for number, obj in enumerate(table, start=1))


def hub_records(repository: str, config: str | None, split: str | None, *, without: str) -> Iterator[Record]:
    """Read the records of one split of a Hub dataset.

    Args:
        repository: dataset as `org/name`.
        config: configuration; None for the default.
        split: the split; None if there is only one.
        without: start of the error message if `datasets` is missing.

    Raises:
        ImportError: `datasets` is not installed.
        ValueError: the dataset has several splits and none was chosen.
    """
    try:
        datasets = require("datasets", extra="hub")
    except ImportError as error:
        raise ImportError(f"{without}; {error}") from error
    name = ":".join(part for part in (repository, config, split) if part)
    table: Any = datasets.load_dataset(repository, config, split=split)
    if split is None:
        splits = list(table)
        if len(splits) != 1:
            raise ValueError(
                f"{name!r} has the splits {', '.join(splits)}; choose one, as in {repository}:{config or 'default'}:"
                f"{splits[0] if splits else 'train'}."
            )
        table = table[splits[0]]
    return ((f"{name}, row {number}", obj) for number, obj in enumerate(table, start=1))


def _missing_file(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{path} does not exist, and its folder {folder} does not exist either; check the path."
    names = sorted(item.name for item in folder.iterdir())
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    near = near or [name for name in names if Path(name).suffix.lower() in READERS][:3]
    return f"{path} does not exist; similar names in {folder}: {', '.join(near) or 'none'}."
