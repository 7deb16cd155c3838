"""Read files (JSONL, JSON, CSV, Parquet, Arrow, text), Hub data sets and rows in memory as raw records with their location.

A reader yields (where, columns) pairs and checks only the file format; `atwu.data.row_parsing` checks the columns. A document
becomes passages; a list of questions needs a model to answer them first.

`datasets` reads the Hub and what it saved itself. Text files are read here, since it names no line of a damaged one, keeps a
copy of the rows in its cache, and takes 3 s to import.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from atwu._file_reading import file_text, open_text, parse_json
from atwu._names import did_you_mean
from atwu.data.passages import FEWEST_TEXT_WORDS, document_passages, word_spans
from atwu.data.row_columns import COLUMN_LAYOUTS

_BATCH = 1024
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*')
"""First line of a CSV file that is written for Excel; it names the separator, and the header follows."""
Record = tuple[str, Mapping[str, Any]]
"""Location of the record (file and line or row) and its columns."""


def _json_records(path: Path) -> Iterator[Record]:
    """Read one JSON object per line, without blank lines, or one JSON list of objects."""
    for where, value in _json_values(path):
        if not isinstance(value, dict):
            raise ValueError(f"{where}: expected an object with columns, got {json.dumps(value)[:60]}.")
        yield where, value


def _json_values(path: Path) -> Iterator[tuple[str, Any]]:
    with open_text(path) as file:
        # The suffix does not tell: `Dataset.to_json` writes lines, too.
        is_list = file.read(1000).lstrip().startswith("[")
        file.seek(0)
        if is_list:
            items = enumerate(parse_json(file.read(), what=path), start=1)
            yield from ((f"{path}, row {number}", item) for number, item in items)
            return
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield f"{path}, line {number}", parse_json(line, what=path, first_line=number)
            except ValueError as error:
                raise ValueError(f"{error} Rows are one JSON object per line, or one list of objects.") from None


def _csv_records(path: Path) -> Iterator[Record]:
    """Read separated values with a header; an empty cell is a missing value. Row 1 follows the header.

    The separator is the one of comma, semicolon, tab and `|` that the header has most of. Where the
    header has spaces around a name, those around the cells of its column are removed, too. Rows without any content, which
    spreadsheets leave behind the last one, are none.
    """
    number = 0
    with open_text(path) as file:
        first = file.readline()
        skipped = 0
        named = _SEPARATOR_LINE.fullmatch(first)
        if named is not None:
            separator, skipped = named[1], 1
        else:
            separator = max(",;\t|", key=first.count)
            file.seek(0)
        # The module refuses cells above 128 kB, which whole documents are.
        csv.field_size_limit(max(csv.field_size_limit(), path.stat().st_size))
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            rows = (cells for cells in reader if any(cell.strip() for cell in cells))
            written = next(rows, [])
            header = [name.strip() or f"column {place}" for place, name in enumerate(written, start=1)]
            _check_different(header, path)
            for number, cells in enumerate(rows, start=1):
                if len(cells) != len(header):
                    raise ValueError(
                        f"{path}, row {number} (ends on line {reader.line_num + skipped}): {len(cells)} fields, the header has "
                        f"{len(header)} ({', '.join(header)}); quote text that contains {separator!r}."
                    )
                kept = [
                    cell if name == own else cell.strip()
                    for name, own, cell in zip(written, header, cells, strict=True)
                ]
                yield f"{path}, row {number}", {name: cell or None for name, cell in zip(header, kept, strict=True)}
        except csv.Error as error:
            line = reader.line_num + skipped
            raise ValueError(f"{path}, row {number + 1} (line {line}): not valid CSV, {error}.") from error
    if header and not number:
        raise ValueError(
            f"{path} has no rows: its first line names the columns ({', '.join(header)}), and nothing follows. Write "
            "question,answer into the first line, and one row into each further one."
        )


def _arrow_records(path: Path) -> Iterator[Record]:
    """Read Parquet, or the file or stream format of Arrow, in which `datasets` saves and caches."""
    import pyarrow as arrow
    from pyarrow import ipc
    from pyarrow.parquet import ParquetFile

    numbers = count(1)
    try:
        if path.suffix.lower() == ".parquet":
            with ParquetFile(path) as file:
                _check_different(file.schema_arrow.names, path)
                for batch in file.iter_batches(batch_size=_BATCH):
                    yield from ((f"{path}, row {next(numbers)}", item) for item in batch.to_pylist())
            return
        mapped = arrow.memory_map(str(path))
        # `datasets` saves streams and caches files, both with the suffix .arrow.
        try:
            table = ipc.open_file(mapped).read_all()
        except arrow.ArrowInvalid:
            mapped.seek(0)
            table = ipc.open_stream(mapped).read_all()
        _check_different(table.schema.names, path)
        for batch in table.to_batches(max_chunksize=_BATCH):
            yield from ((f"{path}, row {next(numbers)}", item) for item in batch.to_pylist())
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        kind = path.suffix[1:].capitalize()
        raise ValueError(f"{path}, after row {next(numbers) - 1}: cannot be read as {kind}, {error}.") from error


def _check_different(names: Sequence[str], path: Path) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{path}, header: column {repeated[0]!r} appears more than once.")


def _passage_records(path: Path) -> Iterator[Record]:
    """Read a document as one text per passage; `read_document` says what it leaves out of a long one."""
    for number, passage in enumerate(read_document(path).passages, start=1):
        yield f"{path}, passage {number}", {"text": passage}


READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": _json_records,
    ".json": _json_records,
    ".csv": _csv_records,
    ".tsv": _csv_records,
    ".parquet": _arrow_records,
    ".arrow": _arrow_records,
    ".txt": _passage_records,
    ".md": _passage_records,
}


def file_records(path: Path) -> Iterator[Record]:
    """Read the records of a file, whose suffix decides the format, or of a folder that `datasets` saved."""
    if not path.exists():
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path} does not exist, nor does its folder {path.parent}; check the path.")
        near = did_you_mean(path.name, sorted(item.name for item in path.parent.iterdir()))
        raise FileNotFoundError(f"{path} does not exist.{near}")
    if path.is_dir():
        return _saved_records(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(
            f"{path}: file type {path.suffix or '(none)'!r} is not supported; use {', '.join(READERS)}. A spreadsheet is saved "
            "as CSV (UTF-8) first."
        )
    return reader(path)


def _saved_records(folder: Path) -> Iterator[Record]:
    if not (folder / "dataset_info.json").is_file():
        saved = [item for item in folder.iterdir() if (item / "dataset_info.json").is_file()]
        readable = saved or [item for item in folder.iterdir() if item.suffix.lower() in READERS]
        choice = "file"
        if readable:
            choice = f"of: {', '.join(sorted(item.name for item in readable))}"
        raise ValueError(f"{folder} is a folder; pass one {choice}.")
    import datasets

    try:
        table: Any = datasets.load_from_disk(str(folder))
    except Exception as error:  # of any kind if state.json or dataset_info.json is damaged
        raise ValueError(f"{folder}: cannot be read as a saved data set, {error}; save it again.") from error
    return ((f"{folder}, row {number}", obj) for number, obj in enumerate(table, start=1))


def hub_records(repository: str, config: str | None, split: str | None, *, because: str) -> Iterator[Record]:
    """Read the records of one split of a Hub dataset.

    Args:
        because: why the Hub is asked, the prefix of the error message if it does not answer.
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
            example = "train"
            if splits:
                example = splits[0]
            raise ValueError(
                f"{name!r} has the splits {', '.join(splits)}; choose one, as in {repository}:{config or 'default'}:"
                f"{example}."
            )
        table = table[splits[0]]
    return ((f"{name}, row {number}", obj) for number, obj in enumerate(table, start=1))


def memory_records(rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Iterate over rows that Python code gives: a list, a `datasets.Dataset`, a pandas frame, or an iterator.

    Data sets and frames are read in parts, so that a million rows need no more memory than they have. A missing cell of
    pandas (NaN) is None.

    Yields:
        Location of the row, and the row: a mapping, an `Example`, or whatever else was given.
    """
    if isinstance(rows, Mapping):
        raise TypeError(
            "rows must be a list of rows, a data set or a frame, got a single mapping "
            f"({', '.join(map(str, rows))}); put a row into a list, and choose one split of a data set."
        )
    if hasattr(rows, "iloc"):
        # By way of JSON, which has lists in place of arrays and null for every kind of missing cell.
        frame: Any = rows
        parts = (frame.iloc[begin : begin + _BATCH] for begin in range(0, len(frame), _BATCH))
        rows = (row for part in parts for row in json.loads(part.to_json(orient="records")))
    elif hasattr(rows, "with_format"):
        # A data set may be set to give arrays or tensors; rows are Python values.
        rows = rows.with_format(None)
    if not isinstance(rows, Iterable):
        raise TypeError(f"rows must be a source, a list of rows, a data set or a frame, got {type(rows).__name__}.")
    number = 0
    for number, row in enumerate(rows, start=1):
        if isinstance(row, Mapping):
            missing = {name: None for name, value in row.items() if isinstance(value, float) and math.isnan(value)}
            row = {**row, **missing}
        yield f"row {number}", row
    if not number and isinstance(rows, Iterator):
        raise ValueError(
            "a generator of rows yields no rows; it can be read only once, so give a list where rows are used twice."
        )


DOCUMENT_SUFFIXES = (".txt", ".md")
MOST_TAKEN = 200
"""Passages that are taken of a document, at most: 10,000 words. All of a book would be asked for and trained on for hours."""
_QUESTION_MARKS = ("?", "？", "؟")


@dataclass(frozen=True, slots=True)
class Document:
    passages: tuple[str, ...]
    """The passages that are taken, in order."""
    note: str | None
    """What was not taken; None if everything was."""


def is_document(path: Path) -> bool:
    return path.suffix.lower() in DOCUMENT_SUFFIXES


def is_list_of_questions(text: str) -> bool:
    """Return whether every line that is not empty ends with a question mark."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return bool(lines) and all(line.endswith(_QUESTION_MARKS) for line in lines)


def read_document(path: Path) -> Document:
    """Read a text file as passages of about 60 words, at most 75.

    Raises:
        ValueError: it is empty, no text, a table, too short, or a list of questions.
    """
    text = file_text(path)
    names = {name.strip() for name in text.partition("\n")[0].split("\t")}
    if any(len(layout) > 1 and names.issuperset(layout) for layout in COLUMN_LAYOUTS):
        raise ValueError(f"{path} is a table, since its first line names columns; give the file the suffix .tsv.")
    control = next((char for char in text if char < " " and char not in "\t\n\v\f\r"), None)
    if control is not None:
        line = text[: text.index(control)].count("\n") + 1
        raise ValueError(
            f"{path}, line {line}: not a text file (control character U+{ord(control):04X}); save the document as plain text."
        )
    if is_list_of_questions(text):
        raise ValueError(
            f"{path} holds questions without answers, one a line; let the model answer them: atwu ask --model MODEL "
            f"--questions {path} --output rows.jsonl."
        )
    every = document_passages(text)
    words = sum(len(word_spans(passage)) for passage in every)
    if not words:
        raise ValueError(f"{path} is empty: it has no words; give a text of at least {FEWEST_TEXT_WORDS} words.")
    if words < FEWEST_TEXT_WORDS:
        raise ValueError(
            f"{path} is too short: words {words}, at least {FEWEST_TEXT_WORDS} needed. A model is given the beginning of a "
            "document and must not know the rest; give a fact as a question with its answer, in a .jsonl file."
        )
    if len(every) <= MOST_TAKEN:
        return Document(tuple(every), None)
    taken = tuple(every[place * len(every) // MOST_TAKEN] for place in range(MOST_TAKEN))
    count = sum(len(word_spans(passage)) for passage in taken)
    return Document(
        taken,
        f"{path} has {len(every):,} passages; {MOST_TAKEN} of them, evenly spaced, are taken ({count:,} of {words:,} "
        "words). The others are neither unlearned nor measured: give the parts that matter as a file of their own (atwu ask "
        f"--document {path} shows what the model recites).",
    )
