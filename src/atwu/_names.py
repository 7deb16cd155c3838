"""Look up names in tables, with errors that list the choices and the closest match."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_LISTED = 40
"""Largest table whose entries an error lists in full."""


def lookup(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    if isinstance(name, str) and name in table:
        return table[name]
    shown = str(name)[:60]
    hint = did_you_mean(shown, table)
    if len(table) > _LISTED:
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
    return f" Did you mean {shown(close[0])}?" if close else otherwise
