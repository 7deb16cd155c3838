"""Load and check rows by source name: a file, a benchmark, a Hub data set, or several joined; and load benchmarks by name.

`load_rows("forget.jsonl")`, `load_rows("people:tiny:forget")`, `load_rows("tofu:forget10")`,
`load_rows("locuslab/TOFU:forget10")`, `load_rows("tofu:retain95:600 + tofu:forget05")`. No row is dropped silently: unusual but
usable input (duplicates, unknown columns) is counted in a warning.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from atwu._cache import cache_folder, writable_folder
from atwu.benchmarks.base import Benchmark, LoadedRows, rows_to_measure
from atwu.benchmarks.catalog import all_benchmarks, find_entry
from atwu.data.labelled_words import target_words_warnings
from atwu.data.records import READERS, Record, file_records, hub_records, is_document, memory_records, read_document
from atwu.data.row_columns import columns_text, mapped_record, parse_columns, split_columns
from atwu.data.row_parsing import fingerprint, ignored_columns, parse_row, row_record, write_rows
from atwu.data.schema import Example
from atwu.data.spool import store_rows

JOIN = " + "
"""Separator of sources whose rows are concatenated."""

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def load_rows(
    source: str | Path | LoadedRows | Iterable[Any],
    *,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
) -> LoadedRows:
    """Load and check the rows of a source.

    Args:
        source: rows in memory (`Example`s, dicts, `LoadedRows`, a `datasets.Dataset` or a pandas frame), which are also
            written to a file in the cache whose name becomes the source; or a file (.jsonl, .json, .csv, .tsv, .parquet,
            .arrow), a document (.txt, .md), whose passages become texts, a folder that `datasets` saved, rows of a benchmark
            such as `people:SIZE:SPLIT[:N]`, `tofu:SPLIT[:N]` or `rwku:SUBJECTS:KIND[:N]`, a Hub data set
            `org/name[:config[:split]]`, or several of these joined by " + ".
            A `Path` is always one file, and so is a string that names an existing file.
        limit: read at most this many rows from the start; later rows are not checked.
        columns: field -> column of the file, for rows with other column names: `{"question": "prompt"}`. In the name of a
            source, it stands behind a file or Hub data set: `faq.csv:question=prompt,answer=completion`.

    Returns:
        The rows with warnings and a fingerprint. With several sources, each warning starts with its source.

    Raises:
        FileNotFoundError: the source looks like a file that does not exist; the message names similar files.
        ValueError: unknown source, empty source, or a malformed row; the message names file, line or row, and column.
        TypeError: the data in memory are a single mapping.
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(f"limit must be a whole number of at least 1, got {limit!r}; leave it out to read all rows.")
    if columns and not isinstance(columns, Mapping):
        raise TypeError(f"columns must be a mapping such as {{'question': 'prompt'}}, got {type(columns).__name__}.")
    warnings: list[str] = []
    if isinstance(source, LoadedRows):
        warnings, source = [*source.warnings], source.rows
    if isinstance(source, str | Path):
        if columns:
            unmapped, source = str(source), with_columns(source, columns)
            if source == unmapped:
                raise ValueError(f"{unmapped} takes no column mapping; only files and Hub data sets without one do.")
        parts = [(str(part), partial(_read_named, part)) for part in _parts(source)]
    else:
        name = "the given data"
        parts = [(name, partial(_check_rows, memory_records(source), columns or {}, name=name))]
    # Eight bytes a row, so that repeats are counted in sets that do not fit into memory.
    hashes = array("q")

    def every() -> Iterator[Example]:
        for name, read_rows in parts:
            before, notes = len(hashes), list[str]()
            left = None
            if limit is not None:
                left = limit - before
            # A source behind the limit is not even opened.
            if left is not None and left <= 0:
                break
            for row in read_rows(left, notes):
                hashes.append(hash(row))
                yield row
            if len(hashes) == before:
                raise ValueError(f"{name} is empty: it has no rows; expected at least one.")
            if len(parts) > 1:
                notes = [f"{name}: {note}" for note in notes]
            warnings.extend(notes)

    rows = store_rows(every())
    repeats = len(rows) - len(set(hashes))
    if repeats:
        warnings.append(f"duplicate rows: {repeats} of {len(rows)} repeat an earlier row exactly (kept)")
    if not isinstance(source, str | Path):
        source = _written(rows)
    return LoadedRows(rows=rows, source=str(source), warnings=tuple(dict.fromkeys(warnings)))


def _kinds_of_source() -> str:
    forms = ", ".join(dict.fromkeys(entry.source for entry in all_benchmarks()))
    return f"a {', '.join(READERS)} file, {forms}, or a Hub data set org/name[:config[:split]]"


def with_columns(source: str | Path, columns: Mapping[str, str]) -> str:
    """Write a column mapping behind every file and Hub data set of a source that has none."""
    # Parsed once, so that a wrong field is named before any file is read.
    text = columns_text(parse_columns(columns_text(columns)))
    names = []
    for name in map(str, _parts(source)):
        # Rows of a benchmark have columns of their own.
        from_file = find_entry(name) is None and ("/" in name or _is_file_name(name, Path(name)))
        if from_file and not _columns_of(name)[1]:
            name = f"{name}:{text}"
        names.append(name)
    return JOIN.join(names)


def absolute_source(source: str) -> str:
    """Return a source with absolute paths of its files, for a record that is read in another working directory."""
    parts = []
    for part in map(str, _parts(source)):
        name = str(_columns_of(part)[0])
        path = Path(name).expanduser()
        if path.exists():
            part = part.replace(name, str(path.absolute()), 1)
        parts.append(part)
    return JOIN.join(parts)


def files_of(source: str | Path) -> list[Path]:
    """Return the files and folders on this machine that a source names."""
    names = (Path(_columns_of(part)[0]).expanduser() for part in _parts(source))
    return [path for path in names if path.exists()]


def _columns_of(source: str | Path) -> tuple[str | Path, dict[str, str]]:
    """Split a source into its name and its column mapping; the name of an existing file has none."""
    if isinstance(source, Path) or os.path.exists(Path(source).expanduser()):
        return source, {}
    return split_columns(source)


def _written(rows: Sequence[Example]) -> Path:
    """Write rows that were given in memory into the cache, so that a command can name them."""
    folder = writable_folder(cache_folder() / "rows")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # they may be what somebody wants forgotten
    path = folder / f"{fingerprint(rows)[:16]}.jsonl"
    write_rows(path, rows)
    return path


def _parts(source: str | Path) -> tuple[str | Path, ...]:
    # A file whose name has the separator is one source.
    if isinstance(source, Path) or JOIN not in source or os.path.exists(Path(source).expanduser()):
        return (source,)
    parts = [part.strip() for part in source.split(JOIN)]
    if not all(parts):
        raise ValueError(
            f"{source!r}: a source is missing before or after {JOIN.strip()!r}; give {_kinds_of_source()} on both sides."
        )
    return tuple(parts)


def _read_named(source: str | Path, limit: int | None, notes: list[str]) -> Iterator[Example]:
    """Iterate over the rows of one source; appends its warnings to `notes` at the end."""
    source, columns = _columns_of(source)
    name = str(source)
    entry = None
    if not isinstance(source, Path) and ":" in name:
        entry = find_entry(name)
    if entry is not None:
        loaded = entry.rows(name)
        if columns:
            raise ValueError(f"{name} has its own columns; leave out {columns_text(columns)}.")
        notes.extend(loaded.warnings)
        # A published table is checked as a whole, also if only its first rows are wanted.
        yield from loaded.rows[:limit]
        return
    path = Path(name).expanduser()
    if "://" in name:
        raise ValueError(f"{name} is an address; download the file, and give its path.")
    if _is_file_name(source, path):
        records = file_records(path)
    else:
        records = _hub_rows(name)
    yield from _check_rows(records, columns, limit, notes, name=name)
    if limit is None and is_document(path):
        notes += filter(None, [read_document(path).note])


def _check_rows(
    records: Iterator[tuple[str, Any]], columns: Mapping[str, str], limit: int | None, notes: list[str], *, name: str
) -> Iterator[Example]:
    """Iterate over checked rows, of which `Example`s have no columns to map; appends warnings to `notes` at the end."""
    ignored: set[str] = set()
    mended: Counter[str] = Counter()
    unseen = set(columns.values())
    # Lazily: rows behind the limit are neither read nor checked.
    for where, obj in islice(records, limit):
        if isinstance(obj, Example):
            obj, unseen = row_record(obj), set()
        elif isinstance(obj, Mapping):
            unseen.difference_update(str(name).strip() for name in obj)
            obj = mapped_record(obj, columns, where=where)
        yield parse_row(obj, where=where, counts=mended)
        ignored |= ignored_columns(obj)
    # Only the whole source tells: a column of an optional field may begin in a later row.
    absent = [pair for pair in columns.items() if pair[1] in unseen]
    if absent and limit is None:
        raise ValueError(f"{name}: no row has the column {absent[0][1]!r} (columns {'='.join(absent[0])}).")
    if ignored:
        notes.append(f"ignored columns: {', '.join(sorted(ignored))}")
    notes.extend(target_words_warnings(mended))


def _is_file_name(source: str | Path, path: Path) -> bool:
    if isinstance(source, Path) or path.suffix.lower() in READERS:
        return True
    # A misspelled path is a missing file, and no question to the Hub.
    written_as_path = path.is_absolute() or source.startswith(("./", "../", "~", ".\\", "..\\"))
    return written_as_path or (bool(source) and path.exists())


def _hub_rows(name: str) -> Iterator[Record]:
    repository, *selection = name.split(":")
    if not _HUB_NAME.fullmatch(repository) or len(selection) > 2 or not all(selection):
        raise ValueError(f"{name!r} is not a known source and no such file exists; give {_kinds_of_source()}.")
    config, split = [*selection, None, None][:2]
    because = f"{name!r} is not a local file, so it was looked up as a Hub data set"
    return hub_records(repository, config, split, because=because)


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Sources of the user's own rows, as `load_rows` reads them."""

    forget: str
    retain: str
    holdout: str | None = None


def load_benchmark(name: str | OwnRows) -> Benchmark:
    """Load a benchmark.

    Args:
        name: one of `atwu benchmarks`, such as `tofu:forget05`; or the user's own rows, of which at most 400 of each set are
            evaluated.

    Raises:
        FileNotFoundError: the data files do not exist.
        ValueError: unknown name, unreadable source, or data that differ from those published.
    """
    if isinstance(name, OwnRows):
        return _own_benchmark(name)
    known = [known_name for entry in all_benchmarks() for known_name in entry.names]
    entry = find_entry(name)
    if entry is None or not (name.partition(":")[2] or name in known):
        raise ValueError(
            f"unknown benchmark {name!r}; choose one of {', '.join(known)} (atwu benchmarks describes them)."
        )
    return entry.load(name)


def _own_benchmark(rows: OwnRows) -> Benchmark:
    forget, retain = load_rows(rows.forget), load_rows(rows.retain)
    holdout: Sequence[Example] = ()
    if rows.holdout is not None:
        holdout = load_rows(rows.holdout).rows
    warnings = (f"{loaded.source}: {warning}" for loaded in (forget, retain) for warning in loaded.warnings)
    return Benchmark(
        name=rows.forget,
        forget_source=rows.forget,
        retain_source=rows.retain,
        full_source=f"{rows.forget} + {rows.retain}",
        retain_only_source=rows.retain,
        forget=rows_to_measure(forget.rows),
        retain=rows_to_measure(retain.rows),
        pool=retain.rows,
        holdout=rows_to_measure(holdout),
        warnings=tuple(warnings),
    )
