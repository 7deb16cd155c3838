"""Turn a dataclass into the options of a command: each field is one option, on the command line and in YAML.

A command is a dataclass with a method `run`; its docstring is its help. Field metadata: `help`, `group` (heading in the help),
`common` (False: shown by --help-all only), `choices`, `least`, `alias` (further flags), `flag` (another name than the field's),
`positional`. A nested dataclass adds its fields. A field made by `settings` takes options from a list.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Literal

OPTIONS_GROUP, MORE_GROUP = "Options", "More"
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "text"}


class UsageError(ValueError):
    """Invalid arguments; the command ends with exit code 2."""


@dataclass(frozen=True, slots=True)
class CliOption:
    """One option of a command."""

    name: str
    """Name of the field and key in YAML."""
    kind: type
    """bool, int, float, str or Path."""
    default: Any
    """MISSING for a required option."""
    help: str = ""
    many: bool = False
    """Whether it can be repeated."""
    group: str = OPTIONS_GROUP
    common: bool = True
    choices: tuple[str, ...] = ()
    least: float | None = None
    alias: tuple[str, ...] = ()
    positional: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def shown(self) -> str:
        """Name in error messages."""
        return self.name.upper() if self.positional else self.flag

    def value(self, given: Any, *, where: str) -> Any:
        """Convert a given value to the type of the option.

        Raises:
            ValueError: wrong type, not among the choices, or too small; the message begins with `where`.
        """
        if self.many:
            every = given if isinstance(given, list) else [given]
            return [dataclasses.replace(self, many=False).value(each, where=where) for each in every]
        found = _converted(given, self.kind)
        if found is None:
            raise ValueError(f"{where} must be {_WORDS[self.kind]}, got {given!r:.60}.")
        if self.choices and found not in self.choices:
            *others, last = self.choices
            raise ValueError(f"{where} must be {', '.join(others)} or {last}, got {found!r:.60}.")
        if self.least is not None and found < self.least:
            raise ValueError(f"{where} must be at least {self.least:g}, got {found}.")
        return found


def cli_option(help: str, default: Any = MISSING, **more: Any) -> Any:
    """Declare a field of a command with its help and metadata; without a default it is required."""
    return field(default=default, metadata={"help": help, **more})


def settings(options: Callable[[], Iterable[CliOption]]) -> Any:
    """Declare a field that receives those of these options that were given, as a dict."""
    return field(default_factory=dict, metadata={"options": functools.cache(lambda: list(options()))})


def cli_options_of(
    source: type, *, without: Collection[str] = (), group: str = OPTIONS_GROUP, common: bool = True
) -> list[CliOption]:
    """Return the options of a dataclass and of nested dataclasses, without fields that a command line cannot set.

    Args:
        source: the dataclass.
        without: fields to leave out.
        group: heading of fields without one.
        common: False shows all of them in --help-all only.
    """
    hints = _hints(source)
    found: list[CliOption] = []
    for each in dataclasses.fields(source):
        about = each.metadata
        hint = hints[each.name]
        if not each.init or each.name in without:
            continue
        if dataclasses.is_dataclass(hint):
            shown = {"group": about.get("group", group), "common": about.get("common", common)}
            found += cli_options_of(typing.cast(type, hint), **shown)
        elif "options" in about:
            found += [option for option in about["options"]() if option.name not in hints]
        elif (plain := _plain(hint)) is not None:
            kind, many, choices = plain
            found.append(
                CliOption(
                    about.get("flag", each.name),
                    kind,
                    each.default if each.default_factory is MISSING else each.default_factory(),
                    about.get("help", ""),
                    many,
                    about.get("group", group),
                    about.get("common", common),
                    tuple(about.get("choices") or choices),
                    about.get("least"),
                    tuple(about.get("alias", ())),
                    about.get("positional", False),
                )
            )
    return found


def built(source: type, given: Mapping[str, Any]) -> Any:
    """Build an object of the dataclass from given values; nested dataclasses take theirs."""
    hints = _hints(source)
    values: dict[str, Any] = {}
    left = dict(given)
    last = [each for each in dataclasses.fields(source) if "options" in each.metadata]
    for each in dataclasses.fields(source):
        name, hint = each.metadata.get("flag", each.name), hints[each.name]
        if dataclasses.is_dataclass(hint):
            nested = typing.cast(type, hint)
            names = [cli_option.name for cli_option in cli_options_of(nested)]
            values[each.name] = built(nested, {name: left.pop(name) for name in names if name in left})
        elif name in left and each not in last:
            value = left.pop(name)
            values[each.name] = tuple(value) if typing.get_origin(hint) is tuple else value
    return source(**values, **{each.name: left for each in last})


def values_of(command: Any, *names: str) -> dict[str, Any]:
    """Return fields of a command as keyword arguments of the same names."""
    return {name: getattr(command, name) for name in names}


_hints = functools.cache(typing.get_type_hints)


def _plain(hint: Any) -> tuple[type, bool, tuple[str, ...]] | None:
    """Return type, whether it repeats, and choices; None for types that only Python can set."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = [each for each in typing.get_args(hint) if each is not type(None)] if union else [hint]
    for plain in (bool, int, float, str, Path):
        if plain in kinds:
            return plain, False, ()
    if any(isinstance(kind, type) and issubclass(kind, str) for kind in kinds):
        return str, False, ()
    (first, *_) = kinds
    if typing.get_origin(first) is Literal:
        return str, False, typing.get_args(first)
    if typing.get_origin(first) in (list, tuple):
        inner = _plain(typing.get_args(first)[0])
        return None if inner is None else (inner[0], True, inner[2])
    return None


def _converted(given: Any, kind: type) -> Any:
    """Convert a value to a type, or return None."""
    if isinstance(given, bool) or kind is bool:
        return given if isinstance(given, bool) and kind is bool else None
    if not isinstance(given, str | int | float | Path):
        return None
    try:
        found = kind(given)
    except (ValueError, OverflowError):
        return None
    return None if kind is int and found != float(str(given)) else found
