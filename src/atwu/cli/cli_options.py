"""Turn a dataclass into the options of a command: each field is one option, on the command line and in YAML.

A command is a dataclass with a method `run`; its docstring is its help. Field metadata: `group` (heading in the help), `common`
(False: shown by --help-all only), `alias` (further flags), `flag` (another name than the field's), `positional`, and fields of
`Option` such as `help`. A nested dataclass adds its fields. A field made by `settings` takes options from a list.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any

from atwu._options import Option, hints_of, option_of

OPTIONS_GROUP, MORE_GROUP = "Options", "More"


class UsageError(ValueError):
    """Invalid arguments; the command ends with exit code 2."""


@dataclass(frozen=True)
class CliOption(Option):
    """One option of a command; `name` is also its key in YAML."""

    group: str = OPTIONS_GROUP
    common: bool = True
    alias: tuple[str, ...] = ()
    positional: bool = False

    @classmethod
    def of(cls, option: Option, **changes: Any) -> CliOption:
        """Return an option of something else, with changes, as one of a command."""
        return cls(**{each.name: getattr(option, each.name) for each in dataclasses.fields(Option)} | changes)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def shown(self) -> str:
        """Name in error messages."""
        return self.name.upper() if self.positional else self.flag


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
        group: heading of fields without one.
        common: False shows all of them in --help-all only.
    """
    hints = hints_of(source)
    found: list[CliOption] = []
    for each in dataclasses.fields(source):
        about, hint = each.metadata, hints[each.name]
        if not each.init or each.name in without:
            continue
        if dataclasses.is_dataclass(hint):
            shown = {"group": about.get("group", group), "common": about.get("common", common)}
            found += cli_options_of(typing.cast(type, hint), **shown)
        elif "options" in about:
            found += [option for option in about["options"]() if option.name not in hints]
        else:
            name = about.get("flag", each.name)
            option = option_of(each, hint, CliOption, name=name, group=group, common=common)
            found += [] if option is None else [option]
    return found


def built(source: type, given: Mapping[str, Any]) -> Any:
    """Build an object of the dataclass from given values; nested dataclasses take theirs."""
    hints = hints_of(source)
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
            values[each.name] = left.pop(name)
    return source(**values, **{each.name: left for each in last})


def values_of(command: Any, *names: str) -> dict[str, Any]:
    """Return fields of a command as keyword arguments of the same names."""
    return {name: getattr(command, name) for name in names}
