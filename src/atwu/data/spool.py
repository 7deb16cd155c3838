"""Rows that are too many for memory: kept in a nameless file, which goes with this process, and read one by one."""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, overload

from atwu._cache import cache_folder
from atwu._disk import room

T = TypeVar("T")

IN_MEMORY = 20_000
"""Rows that are simply held: some 150 MB once they are encoded, at 110 tokens a row."""
_BLOCK = 1 << 20


def gather(
    rows: Iterable[T], pack: Callable[[T], Any], unpack: Callable[[Any], T], *, in_memory: int | None = None
) -> Sequence[T]:
    """All rows of an iterable that is read once: a tuple, or a `Spool` where there are many.

    Args:
        pack: makes plain JSON of a row.
        unpack: makes the equal row of it.
        in_memory: rows up to which they are held; default `IN_MEMORY`.

    Raises:
        DiskFullError: the cache folder has no room for them.
    """
    rows, most = iter(rows), IN_MEMORY if in_memory is None else in_memory
    held = tuple(islice(rows, most + 1))
    if len(held) <= most:
        return held
    spool = Spool(unpack)
    with room(cache_folder()):
        spool.extend(json.dumps(pack(row)).encode() for part in (held, rows) for row in part)
    return spool


class Spool(Sequence[T], Generic[T]):
    """A sequence on disk: memory for it grows by 8 bytes a row alone. Forked processes read the same file."""

    def __init__(self, unpack: Callable[[Any], T]) -> None:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (and not in /tmp, which may be memory)
        self._unpack = unpack
        self._ends = array("q", [0])

    def extend(self, lines: Iterable[bytes]) -> None:
        """Write rows at the end, each a line without its end."""
        end = self._ends[-1]
        for line in lines:
            self._file.write(line)
            end += len(line)
            self._ends.append(end)
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
        return self._unpack(json.loads(os.pread(self._file.fileno(), end - begin, begin)))

    def __iter__(self) -> Iterator[T]:
        first = 0
        while first < len(self):  # in blocks, as every pass over all rows is one of many
            begin, last = self._ends[first], first + 1
            while last < len(self) and self._ends[last] - begin < _BLOCK:
                last += 1
            block = os.pread(self._file.fileno(), self._ends[last] - begin, begin)
            for place in range(first, last):
                yield self._unpack(json.loads(block[self._ends[place] - begin : self._ends[place + 1] - begin]))
            first = last
