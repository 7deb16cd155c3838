"""Store large sets of rows in a temporary file without a name, and read them one by one."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from atwu._cache import cache_folder, writable_folder
from atwu._files import explain_full_disk

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_T = TypeVar("_T")

IN_MEMORY = 20_000
"""Number of rows stored in memory: about 150 MB of encoded rows with 110 tokens each."""


def store_rows(rows: Iterable[_T]) -> Sequence[_T]:
    """Read an iterable once into a tuple, or into a `DiskRows` if it has more than `IN_MEMORY` rows."""
    rows = iter(rows)
    first_rows = tuple(islice(rows, IN_MEMORY + 1))
    if len(first_rows) <= IN_MEMORY:
        return first_rows
    spool = DiskRows(type(first_rows[0]))
    with explain_full_disk(cache_folder()):
        spool.extend(chain(first_rows, rows))
    return spool


class DiskRows(Sequence[_T], Generic[_T]):
    """Sequence of rows on disk, with 8 bytes of memory per row. Forked processes share the file.

    Args:
        kind: class of the rows; pydantic converts them to and from JSON.
    """

    def __init__(self, kind: type[_T]) -> None:
        from pydantic import TypeAdapter

        folder = writable_folder(cache_folder())
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (not in /tmp, which may be in memory)
        self._form: TypeAdapter[_T] = TypeAdapter(kind)
        self._ends = array("q", [0])

    def extend(self, rows: Iterable[_T]) -> None:
        for row in rows:
            self._ends.append(self._ends[-1] + self._file.write(self._form.dump_json(row)))
        self._file.flush()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        begin, end = self._ends[place], self._ends[place + 1]
        return self._form.validate_json(self._read(begin, end - begin))

    def _read(self, begin: int, size: int) -> bytes:
        if hasattr(os, "pread"):  # forked processes share the position in the file, too
            return os.pread(self._file.fileno(), size, begin)
        self._file.seek(begin)
        return self._file.read(size)
