"""Tables of names: registries, and look-ups whose errors list the choices and the closest match."""

from __future__ import annotations

import difflib
import importlib
import typing
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

_LISTED = 40
"""Largest table whose entries an error lists in full."""
_T = TypeVar("_T")


# Not a `dict`, whose own `get`, `values` and `items` would return places in place of what is there.
class Registry(UserDict[str, _T]):
    """Values of one kind by name, in the order in which they were added.

    A value given as "module:attribute" is imported when it is first used, so that a table of names costs no import.
    """

    def __init__(self, kind: str, entries: Mapping[str, _T | str]) -> None:
        """Make a table.

        Args:
            kind: what an entry is called in errors, such as "method".
            entries: name -> value, or where it is defined.
        """
        super().__init__(typing.cast("Mapping[str, _T]", entries))
        self.kind = kind

    def __getitem__(self, name: str) -> _T:
        value = self.data[name]
        if isinstance(value, str):
            module, _, attribute = value.partition(":")
            self.data[name] = getattr(importlib.import_module(module), attribute)
        return self.data[name]

    def find(self, name: str) -> _T:
        """Return the value of a name that a user gave.

        Raises:
            ValueError: there is none; the error lists the names, or the closest ones of many.
        """
        value: _T = lookup(self.kind, name, self)
        return value

    def add(self, name: str, value: _T) -> None:
        """Add a value that a user defines.

        Raises:
            ValueError: the name is taken, or cannot be used on the command line.
        """
        if not (isinstance(name, str) and name.isidentifier()):
            raise ValueError(f"{self.kind} names must consist of letters, digits and underscores, got {name!r}.")
        if name in self:
            raise ValueError(f"a {self.kind} {name!r} is registered already; choose another name.")
        self[name] = value


def lookup(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    if isinstance(name, str) and name in table:
        return table[name]
    shown = str(name)[:60]
    hint = did_you_mean(shown, table)
    # All 38 methods are shown; of the hundreds of options only those that resemble the name.
    if len(table) > _LISTED:
        # A low cutoff: of many names some that resemble it are better than the first ones.
        near = difflib.get_close_matches(shown, table, n=6, cutoff=0.3) or [*table][:6]
        raise ValueError(f"unknown {kind} {shown!r}; there are {len(table)}, such as {', '.join(near)}.{hint}")
    raise ValueError(f"unknown {kind} {shown!r}; choose from {', '.join(table)}.{hint}")


def source_location(thing: Any) -> str:
    """Return the file and name of a function or class, such as `atwu/methods/losses/likelihood.py:GradientAscent`."""
    return f"{thing.__module__.replace('.', '/')}.py:{thing.__qualname__}"


def did_you_mean(
    name: object, known: Iterable[str], otherwise: str = "", *, shown: Callable[[str], str] = repr
) -> str:  # fmt: skip
    """Return a sentence (with a leading space) that names the closest known name, or else `otherwise`."""
    close = difflib.get_close_matches(str(name), known, n=1)
    if not close:
        return otherwise
    return f" Did you mean {shown(close[0])}?"
