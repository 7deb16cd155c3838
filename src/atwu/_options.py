"""Options: name, type, default, allowed values and help of a value that Python, YAML or a command line sets.

A field of a dataclass is an option: `option_of` reads its type, default and metadata (names of fields of `Option`), and pairs
of name and value in an `Annotated` type.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

# Seeds and sizes end in tensors and arrays, whose whole numbers have 64 bits.
_LARGEST = 2**63
"""Limit on the absolute value of whole numbers."""

_WORDS = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text", Path: "text"}
_STRICT = {int: int, float: int | float, str: str | os.PathLike, Path: str | os.PathLike}


@dataclass(frozen=True)
class Option:
    """One option."""

    name: str
    kind: type
    """bool, int, float, str or Path."""
    default: Any
    """MISSING for a required option; with None as default, None is allowed."""
    help: str = ""
    many: bool = False
    """Whether it is a list of values, or a tuple if the default is one."""
    optional: bool = False
    """Whether None is allowed with another default."""
    choices: tuple[str, ...] = ()
    least: float | None = None
    """Smallest allowed number, inclusive."""
    above: float | None = None
    """Lower bound, exclusive."""
    most: float | None = None
    """Largest allowed number, inclusive."""
    check: Callable[[Any], None] | None = None
    """Further check; raises ValueError for a value that is not allowed."""

    def value(self, value: Any, *, where: str = "", strict: bool = False) -> Any:
        """Check a value and convert it to the type of the option.

        Args:
            where: how errors name the option, if not by its name.
            strict: whether a number in quotes, a number for text, and one value for a list are errors, as in Python; on a
                command line and in YAML they are not.
        """
        where = where or self.name
        if value is None and (self.optional or self.default is None):
            return None
        if not self.many:
            return self._check_one(value, where, strict)
        if not isinstance(value, list | tuple):
            if strict:
                raise ValueError(f"{where} must be a list of values, got {value!r:.60}.")
            # `--score a` and `score: a` mean a list of one.
            value = [value]
        checked = [self._check_one(entry, where, strict) for entry in value]
        if isinstance(self.default, tuple):
            return tuple(checked)
        return checked

    def _check_one(self, value: Any, where: str, strict: bool) -> Any:
        converted = _convert(value, self.kind, strict)
        if isinstance(converted, int) and abs(converted) >= _LARGEST:
            # Not quoted: Python refuses to write more than 4,300 digits.
            raise ValueError(f"{where} must be {self._allowed}, of at most 64 bits; the given one is longer.")
        if converted is None:
            raise ValueError(f"{where} must be {self._allowed}, got {value!r:.60}.")
        allowed = (
            (not self.choices or converted in self.choices)
            and (self.least is None or converted >= self.least)
            and (self.above is None or converted > self.above)
            and (self.most is None or converted <= self.most)
        )
        if not allowed:
            raise ValueError(f"{where} must be {self._allowed}, got {converted!r:.60}.")
        if self.check is not None:
            self.check(converted)
        return converted

    @property
    def _allowed(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        bounds = {">=": self.least, ">": self.above, "<=": self.most}
        shown = [f"{sign} {bound:.10g}" for sign, bound in bounds.items() if bound is not None]
        return f"{_WORDS[self.kind]} {' and '.join(shown)}".rstrip()


def _convert(value: Any, kind: type, strict: bool) -> Any:
    """Convert a value to a type, or return None."""
    # True is an int in Python; it is a mistake where a number is meant.
    if isinstance(value, bool) and kind is bool:
        return value
    if isinstance(value, bool) or kind is bool:
        return None
    if not isinstance(value, _STRICT[kind] if strict else str | int | float | os.PathLike):
        return None
    try:
        converted = kind(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(converted, float) and not math.isfinite(converted):
        return None
    if kind is int and isinstance(value, float) and converted != value:  # int() would cut 1.5 to 1
        return None
    return converted


hints_of = functools.cache(functools.partial(typing.get_type_hints, include_extras=True))

OptionT = TypeVar("OptionT", bound=Option)


@functools.cache
def options_of(source: type, option_type: type[OptionT], *, mixed: bool = True) -> tuple[OptionT, ...]:
    """Return the fields of a dataclass that have metadata and a plain type as options.

    Args:
        mixed: whether to include fields that also accept other types, such as a dict.
    """
    hints = hints_of(source)
    options = []
    for entry in dataclasses.fields(source):
        hint = hints[entry.name]
        if entry.init and entry.metadata and (mixed or len(_kinds(hint)) == 1):
            options.append(option_of(entry, hint, option_type))
    return tuple(option for option in options if option is not None)


def option_of(field: dataclasses.Field[Any], hint: Any, option_type: type[OptionT], **facts: Any) -> OptionT | None:
    """Return a field as an option, or None if only Python can set its type; metadata and hint override `facts`."""
    kinds = _kinds(hint)
    many = _WORDS.keys().isdisjoint(kinds) and typing.get_origin(kinds[0]) in (list, tuple)
    kind = next((plain for plain in _WORDS if plain in (typing.get_args(kinds[0]) if many else kinds)), None)
    if kind is None:
        return None
    about = {
        **field.metadata,
        **{name: fact for part in _parts(hint) for name, fact in getattr(part, "__metadata__", ())},
    }
    known = {entry.name for entry in dataclasses.fields(option_type)}
    facts = {"name": field.name, **facts, **{name: fact for name, fact in about.items() if name in known}}
    facts |= {"kind": kind, "many": many, "choices": tuple(about.get("choices") or ())}
    default = field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    return option_type(default=default, optional=types.NoneType in _parts(hint), **facts)


def _parts(hint: Any) -> tuple[Any, ...]:
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else (hint,)


def _kinds(hint: Any) -> list[Any]:
    """Return the types of a hint except None, without annotations."""
    bare = [typing.get_args(part)[0] if typing.get_origin(part) is Annotated else part for part in _parts(hint)]
    return [kind for kind in bare if kind is not types.NoneType]
