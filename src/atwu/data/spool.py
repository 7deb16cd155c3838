"""Rows that are too many for memory: kept in a nameless file, which goes with this process, and read one by one."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from atwu._cache import cache_folder
from atwu._disk_errors import room

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

IN_MEMORY = 20_000
"""Rows that are simply held: some 150 MB once they are encoded, at 110 tokens a row."""


def store_rows(rows: Iterable[T]) -> Sequence[T]:
    """All rows of an iterable that is read once: a tuple, or a `DiskRows` where there are more than `IN_MEMORY`.

    Raises:
        DiskFullError: the cache folder has no room for them.
    """
    rows = iter(rows)
    held = tuple(islice(rows, IN_MEMORY + 1))
    if len(held) <= IN_MEMORY:
        return held
    spool = DiskRows(type(held[0]))
    with room(cache_folder()):
        spool.extend(chain(held, rows))
    return spool


class DiskRows(Sequence[T], Generic[T]):
    """A sequence on disk: memory for it grows by 8 bytes a row alone. Forked processes read the same file.

    Args:
        kind: class of all rows, whose JSON pydantic makes and reads.
    """

    def __init__(self, kind: type[T]) -> None:
        from pydantic import TypeAdapter

        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (and not in /tmp, which may be memory)
        self._form: TypeAdapter[T] = TypeAdapter(kind)
        self._ends = array("q", [0])

    def extend(self, rows: Iterable[T]) -> None:
        """Write rows at the end."""
        for row in rows:
            self._ends.append(self._ends[-1] + self._file.write(self._form.dump_json(row)))
        self._file.flush()

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return tuple(self[each] for each in range(*index.indices(len(self))))
        place = range(len(self))[index]
        begin, end = self._ends[place], self._ends[place + 1]
        return self._form.validate_json(os.pread(self._file.fileno(), end - begin, begin))
