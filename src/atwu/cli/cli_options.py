"""Turn a dataclass into the options of a command, parse its arguments, and print its help: a field is one option or YAML key.

Fields become `CliOption`s (`cli_options_of`), these arguments of argparse (`_add_all`), the values a command (`build_command`).
A command is a dataclass with a method `run`; its docstring is its help. Field metadata: `group` (heading in the help), `common`
(False: shown by --help-all only), `alias` (further flags), `flag` (another name than the field's), `positional`, and fields of
`Option` such as `help`. A nested dataclass adds its fields. A field made by `listed_options` takes options from a list.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from atwu._file_reading import read_mapping
from atwu._names import did_you_mean
from atwu._options import Option, hints_of, option_of
from atwu.errors import UsageError

ABOUT = "about"
"""Key of a preset for what is known about it: a mapping, which is ignored. As a text it is the option of that name."""
OPTIONS_GROUP, MORE_GROUP = "Options", "More"


@dataclass(frozen=True)
class CliOption(Option):
    """One option of a command; `name` is also its key in YAML."""

    group: str = OPTIONS_GROUP
    common: bool = True
    alias: tuple[str, ...] = ()
    positional: bool = False
    needs: str = ""
    """Option without which it has no effect."""
    excludes: str = ""
    """Option that cannot be given together with it; a flag replaces it in the YAML."""

    @classmethod
    def of(cls, option: Option, **changes: Any) -> CliOption:
        """Return an option of something else, with changes, as one of a command."""
        return cls(**{entry.name: getattr(option, entry.name) for entry in dataclasses.fields(Option)} | changes)

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


def listed_options(options: Callable[[], Iterable[CliOption]]) -> Any:
    """Declare a field that receives those of these options that were given, as a dict."""
    return field(default_factory=dict, metadata={"options": functools.cache(lambda: list(options()))})


def cli_options_of(
    source: type, *, without: Collection[str] = (), group: str | None = None, common: bool = True
) -> list[CliOption]:
    """Return the options of a dataclass and of nested dataclasses, without fields that a command line cannot set.

    Args:
        group: heading of fields without one; by default the class's own `heading`, if it has one.
        common: False shows all of them in --help-all only.
    """
    hints, group = hints_of(source), group or getattr(source, "heading", OPTIONS_GROUP)
    options: list[CliOption] = []
    for entry in dataclasses.fields(source):
        about, hint = entry.metadata, hints[entry.name]
        if not entry.init or entry.name in without:
            continue
        if dataclasses.is_dataclass(hint):
            shown = {"group": about.get("group", group), "common": about.get("common", common)}
            options += cli_options_of(typing.cast(type, hint), **shown)
        elif "options" in about:
            # A field of the command comes before a listed option of the same name.
            options += [option for option in about["options"]() if option.name not in hints]
        else:
            name = about.get("flag", entry.name)
            option = option_of(entry, hint, CliOption, name=name, group=group, common=common)
            if option is not None:
                options.append(option)
    return options


def build_command(source: type, values: Mapping[str, Any]) -> Any:
    """Build a command, or a dataclass nested in one, from values by name of the option."""
    hints = hints_of(source)
    fields: dict[str, Any] = {}
    left = dict(values)
    for entry in dataclasses.fields(source):
        name, hint = entry.metadata.get("flag", entry.name), hints[entry.name]
        if dataclasses.is_dataclass(hint):
            nested = typing.cast(type, hint)
            names = [option.name for option in cli_options_of(nested)]
            fields[entry.name] = build_command(nested, {name: left.pop(name) for name in names if name in left})
        elif "options" in entry.metadata:
            fields[entry.name] = left  # what no other field takes, once the loop is over
        elif name in left:
            fields[entry.name] = left.pop(name)
    return source(**fields)


def values_of(command: Any, *names: str) -> dict[str, Any]:
    """Return fields of a command as keyword arguments of the same names."""
    return {name: getattr(command, name) for name in names}


def parse_command(command: type, words: Sequence[str], *, name: str) -> Any:
    """Parse a command, a dataclass, from arguments and the YAML given with --config; flags override the YAML."""
    help_flags = {"-h", "--help", "--help-all"}.intersection(words)
    if help_flags:
        print(help_text(command, name=name, everything="--help-all" in help_flags), end="")
        raise SystemExit(0)
    options = cli_options_of(command)
    written, unknown = _read(options, words)
    if unknown:
        raise UsageError(_unknown(unknown[0], options))
    by_name = {option.name: option for option in options}
    flags: dict[str, Any] = {}
    for key, value in written.items():
        try:
            flags[key] = by_name[key].value(value, where=by_name[key].shown)
        except ValueError as error:
            raise UsageError(str(error)) from None
    values = _from_yaml(command, options, flags) | flags
    # A switch that is off needs and excludes nothing.
    chosen = {key: value for key, value in values.items() if value is not False}
    for option in (by_name[name] for name in chosen):
        if option.needs and not chosen.get(option.needs):
            raise UsageError(
                f"{option.shown} has no effect without {by_name[option.needs].flag}; give both or neither."
            )
        if option.excludes in chosen:
            pair = ("/".join((named.flag, *named.alias)) for named in (option, by_name[option.excludes]))
            where = ""
            if not {option.name, option.excludes} <= flags.keys():
                where = f"{values['config']}: "
            raise UsageError(f"{where}{' and '.join(pair)} exclude each other; give one of them.")
    missing = [option.shown for option in options if option.default is MISSING and option.name not in values]
    if missing:
        hint = ""
        if "config" in by_name:
            hint = "; pass as flags or in the --config file"
        raise UsageError(f"{' and '.join(missing)} missing{hint}.")
    return build_command(command, values)


def help_text(command: type, *, name: str, everything: bool = False) -> str:
    """Return help in the width of the terminal."""
    from rich_argparse.contrib import ParagraphRichHelpFormatter

    class Formatter(ParagraphRichHelpFormatter):
        # Rich would take square brackets in a help text for its own markup, and write headings in title case.
        help_markup = text_markup = False
        group_name_formatter = str

    options = cli_options_of(command)
    hidden = not all(option.common for option in options)
    if everything:
        options = [replace(option, common=True) for option in options if not option.help.startswith("Deprecated")]
    options.append(CliOption("help", bool, False, "Show this help and exit.", alias=("-h",)))
    if hidden:
        options.append(CliOption("help_all", bool, False, "Show all options and exit."))
    positionals = [_metavar(option) for option in options if option.positional]
    about = "\n\n".join(" ".join(part.split()) for part in (command.__doc__ or "").split("\n\n"))
    parser = _Parser(
        usage=" ".join(["atwu", name, *positionals, "[OPTIONS]"]),
        description=about,
        formatter_class=Formatter,
        add_help=False,
    )
    _add_all(parser, [option for option in options if option.common])
    return parser.format_help()


def _read(options: Sequence[CliOption], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the given values by name, and the arguments that are not understood."""
    # An empty usage saves argparse from building one. What was not given has no value, so that the YAML can supply it.
    parser = _Parser(usage="", argument_default=argparse.SUPPRESS, add_help=False)
    _add_all(parser, options)
    # Intermixed, so that a positional argument may stand behind flags.
    namespace, unknown = parser.parse_known_intermixed_args(words)
    return vars(namespace), unknown


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise an error that reads like our own, where argparse would print its usage and exit."""
        words = re.sub(r"^argument (-\w/)?", "", message)
        short = words.removesuffix(": expected one argument")
        if short != words:
            flag = short.rpartition("/")[2]
            words = f"{short} needs a value; one that begins with a dash is given as {flag}=-VALUE"
        raise UsageError(f"{words}.")


def _add_all(parser: argparse.ArgumentParser, options: Iterable[CliOption]) -> None:
    """Add options; types are checked later, as for YAML values."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in options:
        heading = "Arguments" if option.positional else option.group
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading)
        group, about, metavar = groups[heading], _describe(option), _metavar(option)
        if option.positional:
            group.add_argument(option.name, nargs="*" if option.many else "?", metavar=metavar, help=about)
        elif option.kind is not bool:
            flags = sorted([option.flag, *option.alias], key=len)  # the help lists a short form first
            action = "append" if option.many else "store"
            group.add_argument(*flags, dest=option.name, action=action, metavar=metavar, help=about)
        elif option.default is False:  # a switch that is off by default needs no --no- form in the help
            group.add_argument(option.flag, *option.alias, action="store_true", help=about)
            off = "--no-" + option.flag[2:]
            group.add_argument(off, dest=option.name, action="store_false", help=argparse.SUPPRESS)
        else:
            group.add_argument(option.flag, *option.alias, action=argparse.BooleanOptionalAction, help=about)


def _metavar(option: CliOption) -> str:
    if option.positional:
        name = option.name.upper()
        if option.many:
            return f"{name}..."
        if option.default is MISSING:
            return name
        return f"[{name}]"
    if option.choices:
        return "{" + ",".join(option.choices) + "}"
    return {int: "N", float: "X"}.get(option.kind, "TEXT")


def _describe(option: CliOption) -> str:
    """Return the help of an option with its default, with per cent signs escaped for argparse."""
    words = " ".join(option.help.split())
    default = option.default
    if isinstance(default, tuple):
        default = ", ".join(default)
    # These say nothing: an option that is off, empty, or (-1, in transformers) has no limit.
    empty = default is None or default is False or default in ("", -1, [])
    if default is MISSING:
        if not option.positional:
            words += " (required)"
    elif isinstance(default, float) and not empty:
        words += f" (default {default:g})"
    elif not empty:  # options of transformers may have an enumeration as default
        words += f" (default {getattr(default, 'value', default)})"
    return words.replace("%", "%%")


def _unknown(word: str, options: Iterable[CliOption]) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r}."
    flags = ["--help", *(flag for option in options if not option.positional for flag in (option.flag, *option.alias))]
    # Without its value, which the message need not repeat.
    flag = word.partition("=")[0]
    if flag == "--device" and "--use-cpu" in flags:  # training has no such option, unlike the other commands
        return "unknown option --device; training takes the GPU if there is one, and the CPU with --use-cpu."
    return f"unknown option {flag}.{did_you_mean(flag, flags, shown=str)}"


def _from_yaml(command: type, options: list[CliOption], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the YAML given with `--config` that no flag overrides, if the command has that option."""
    path = flags.get("config")
    if not path:
        return {}
    fields = {option.name: option for option in dataclasses.fields(command)}
    reader = fields["config"].metadata.get("read", read_config)
    # A flag also overrides the option that it excludes, as --max-steps does the number of epochs of a preset.
    overridden = {option.excludes for option in options if option.name in flags}
    written = convert_options(reader(path), command, where=path)
    return {name: value for name, value in written.items() if name not in overridden}


def read_config(path: Path) -> dict[str, Any]:
    """Read a flat YAML file of options, without what a preset says about itself."""
    if not path.is_file():
        raise FileNotFoundError(f"--config {path} not found; give an existing YAML file.")
    values = read_mapping(path)
    if isinstance(values.get(ABOUT), dict):
        del values[ABOUT]
    return values


def convert_options(values: Mapping[str, Any], command: type, *, where: Path) -> dict[str, Any]:
    """Check and convert the options of a command that were read from a file."""
    known = {option.name: option for option in cli_options_of(command) if option.name != "config"}
    for key in values:
        if key not in known:
            flag = f"--{key.replace('_', '-')}"
            meant = next((option.name for option in known.values() if flag in option.alias), None)
            if meant is not None:
                raise ValueError(f"{where}: unknown key {key!r}; the key of {flag} is {meant}.")
            hint = did_you_mean(key, known, f" Known keys start with {', '.join([*known][:8])}, ...")
            raise ValueError(f"{where}: unknown key {key!r}.{hint}")
    # An empty value in YAML means that the option is left open.
    return {key: known[key].value(value, where=f"{where}: {key}") for key, value in values.items() if value is not None}
