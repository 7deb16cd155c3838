"""Read files (JSONL, JSON, CSV, Parquet, Arrow), Hub datasets and rows in memory as raw records with their location.

A reader yields (where, columns) pairs and checks only the file format; `atwu.data.row_parsing` checks the columns. Only
`\\n` and `\\r\\n` end a line: U+2028, U+2029 and U+0085 are ordinary characters inside a string.

`datasets` reads the Hub and what it saved itself. Text files are read here, since it names no line of a damaged one (of the 102
damaged files in the tests, 36 end in "An error occurred while generating the dataset" and one crashes the interpreter), keeps
a copy of the rows in its cache, and takes 3 s to import.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from atwu._file_reading import decoded, file_lines, file_text, open_text, parse_json

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
    number = 0
    with open_text(path) as file:
        first = file.readline()
        file.seek(0)
        separator = max(",;\t", key=first.count)
        csv.field_size_limit(max(csv.field_size_limit(), path.stat().st_size))
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            rows = filter(None, reader)  # without blank lines
            header = [name.strip() for name in next(rows, ())]
            _check_different(header, path)
            for number, cells in enumerate(rows, start=1):
                if len(cells) != len(header):
                    raise ValueError(
                        f"{path}, row {number} (ends on line {reader.line_num}): {len(cells)} fields, the header has "
                        f"{len(header)} ({', '.join(header)}); quote text that contains {separator!r}."
                    )
                yield f"{path}, row {number}", {name: cell or None for name, cell in zip(header, cells, strict=True)}
        except csv.Error as error:
            raise ValueError(f"{path}, row {number + 1} (line {reader.line_num}): not valid CSV, {error}.") from error


def read_arrow_records(path: Path) -> Iterator[Record]:
    """Read Parquet, or the file or stream format of Arrow, in which `datasets` saves and caches."""
    import pyarrow as arrow

    kind, number = "Parquet" if path.suffix.lower() == ".parquet" else "Arrow", 0
    try:
        for batch in (_parquet_batches if kind == "Parquet" else _arrow_batches)(path):
            for begin in range(0, len(batch), _BATCH):
                for item in batch.slice(begin, _BATCH).to_pylist():
                    number += 1
                    yield f"{path}, row {number}", item
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, after row {number}: cannot be read as {kind}, {error}.") from error


def _parquet_batches(path: Path) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        _check_different(file.schema_arrow.names, path)
        yield from file.iter_batches(batch_size=_BATCH)


def _arrow_batches(path: Path) -> Iterator[Any]:
    import pyarrow as arrow
    from pyarrow import ipc

    with arrow.memory_map(str(path)) as file:
        try:
            opened = ipc.open_file(file)
        except arrow.ArrowInvalid:
            file.seek(0)
            stream = ipc.open_stream(file)
            _check_different(stream.schema.names, path)
            yield from stream
        else:
            _check_different(opened.schema.names, path)
            yield from map(opened.get_batch, range(opened.num_record_batches))


def _check_different(names: Sequence[str], path: Path) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{path}, header: column {repeated[0]!r} appears more than once.")


READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": read_jsonl_records,
    ".json": read_json_records,
    ".csv": read_csv_records,
    ".tsv": read_csv_records,
    ".parquet": read_arrow_records,
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
    if _is_saved(path):
        return saved_records(path)
    if path.is_dir():
        saved = sorted(item.name for item in path.iterdir() if _is_saved(item))
        inside = saved or sorted(item.name for item in path.iterdir() if item.suffix.lower() in READERS)
        raise ValueError(f"{path} is a folder; pass one {'of: ' + ', '.join(inside) if inside else 'file'}.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: file type {path.suffix or '(none)'!r} is not supported; use {', '.join(READERS)}.")
    return reader(path)


def _is_saved(path: Path) -> bool:
    return (path / "dataset_info.json").is_file()


def saved_records(folder: Path) -> Iterator[Record]:
    """Read the records of a data set that `datasets` saved with `save_to_disk`.

    Raises:
        ValueError: the folder cannot be read.
    """
    import datasets

    try:
        table: Any = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: cannot be read as a saved data set, {error}.") from error
    return ((f"{folder}, row {number}", obj) for number, obj in enumerate(table, start=1))


def hub_records(repository: str, config: str | None, split: str | None, *, because: str) -> Iterator[Record]:
    """Read the records of one split of a Hub dataset.

    Args:
        repository: dataset as `org/name`.
        config: configuration; None for the default.
        split: the split; None if there is only one.
        because: why the Hub is asked, the prefix of the error message if it does not answer.

    Raises:
        ValueError: the dataset cannot be loaded, or has several splits and none was chosen.
    """
    import datasets

    name = ":".join(part for part in (repository, config, split) if part)
    try:
        table: Any = datasets.load_dataset(repository, config, split=split)
    except (OSError, ValueError) as error:
        raise ValueError(f"{because}: {error}") from error
    if split is None:
        splits = list(table)
        if len(splits) != 1:
            raise ValueError(
                f"{name!r} has the splits {', '.join(splits)}; choose one, as in {repository}:{config or 'default'}:"
                f"{splits[0] if splits else 'train'}."
            )
        table = table[splits[0]]
    return ((f"{name}, row {number}", obj) for number, obj in enumerate(table, start=1))


def memory_records(rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Iterate over rows that Python code gives: a list, a `datasets.Dataset`, a pandas frame, or an iterator.

    Data sets and frames are read in parts, so that a million rows need no more memory than they have. A missing cell of
    pandas (NaN) is None.

    Yields:
        Location of the row, and the row: a mapping, an `Example`, or whatever else was given.

    Raises:
        TypeError: a single mapping, such as one row or all splits of a data set.
    """
    if isinstance(rows, Mapping):
        raise TypeError(
            "rows must be a list of rows, a data set or a frame, got a single mapping "
            f"({', '.join(map(str, rows))}); put a row into a list, and choose one split of a data set."
        )
    if hasattr(rows, "iloc"):
        rows = _frame_rows(rows)
    elif hasattr(rows, "with_format"):
        rows = rows.with_format(None)  # Python values, not arrays or tensors
    return ((f"row {number}", _without_nan(row)) for number, row in enumerate(rows, start=1))


def _frame_rows(frame: Any) -> Iterator[Any]:
    """Iterate over the rows of a pandas frame, with lists in place of arrays and None for every kind of missing cell."""
    for begin in range(0, len(frame), _BATCH):
        yield from json.loads(frame.iloc[begin : begin + _BATCH].to_json(orient="records"))


def _without_nan(row: Any) -> Any:
    if not isinstance(row, Mapping):
        return row
    return {name: None if isinstance(value, float) and value != value else value for name, value in row.items()}


def _missing_file(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{path} does not exist, and its folder {folder} does not exist either; check the path."
    names = sorted(item.name for item in folder.iterdir())
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    near = near or [name for name in names if Path(name).suffix.lower() in READERS][:3]
    return f"{path} does not exist; similar names in {folder}: {', '.join(near) or 'none'}."
