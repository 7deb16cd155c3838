"""Config fields as command-line options and YAML keys, from the one dataclass that defines them."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from atwu._yaml import parse_yaml

if TYPE_CHECKING:
    from atwu.methods.options import Option

_COMMON = [
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "seed",
    "system",
    "warmup_steps",
    "lr_scheduler_type",
    "weight_decay",
    "bf16",
    "gradient_checkpointing",
    "lora_r",
    "lora_alpha",
    "lora_targets",
    "lora_dropout",
    "quantize",
    "save_adapter",
    "use_cpu",
    "logging_steps",
    "save_strategy",
    "save_steps",
    "report_to",
    "push_to_hub",
    "disable_tqdm",
]
"""Fields shared by all trainers worth a line in the help; the others are accepted too."""

_RUN_KEYS = ("output_dir",)
"""Fields that the command decides itself."""
_ABOUT = "about"
"""Key of a YAML that no run reads: where its values come from and what they reached."""


def with_config_options(command: Callable[..., None], config: type) -> Callable[..., None]:
    """Give a command one option per field of `config`; the command receives the set ones as `settings`."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
    fields = {field.name: field for field in dataclasses.fields(config) if field.init and field.name not in _RUN_KEYS}
    taken = {parameter.name for parameter in own}
    hints = typing.get_type_hints(config)
    inherited = _inherited_names()
    added: list[inspect.Parameter] = []
    for name, field in fields.items():
        kind = _plain_type(hints[name])
        if name in taken or kind is None:
            continue
        mine = field.name not in inherited
        flag = "--" + name.replace("_", "-")
        # A switch that is off by default needs no way to switch it off.
        both_ways = kind is bool and field.default is not False
        option = typer.Option(
            f"{flag}/--no-{flag[2:]}" if both_ways else flag,
            help=_first_sentence(str(field.metadata.get("help", ""))) + _default_note(field),
            rich_help_panel="Method and scorer" if mine else "Training",
            hidden=not (mine or name in _COMMON),
            show_default=False,
        )
        parameter = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind | None, option],
        )
        added.insert(sum(parameter.name not in inherited for parameter in added) if mine else len(added), parameter)

    parts = _part_options(config)
    for name, part in parts.items():
        note = "" if part.default in (None, "", False) else f" (default {part.default})"
        option = typer.Option(
            f"--{name.replace('_', '-')}" + (f"/--no-{name.replace('_', '-')}" if part.default is True else ""),
            help=part.help.capitalize() + "." + note,
            rich_help_panel="Method and scorer",
            show_default=False,
        )
        hint: Any = Annotated[part.kind | None, option]
        added.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint))

    def wrapped(**given: Any) -> None:
        settings = {n: value for n, value in given.items() if (n in fields or n in parts) and n not in taken}
        rest = {name: value for name, value in given.items() if name not in settings}
        command(**rest, settings={name: value for name, value in settings.items() if value is not None})

    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    wrapped.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    wrapped.__doc__ = command.__doc__
    wrapped.__name__ = command.__name__
    return wrapped


def _part_options(config: type) -> dict[str, Option]:
    """The numbers and settings of the method's parts, if the config takes them."""
    from atwu.methods.parts import part_options
    from atwu.methods.plugins import load_plugins

    load_plugins()
    return part_options() if "part_options" in {field.name for field in dataclasses.fields(config)} else {}


def _inherited_names() -> set[str]:
    """Names of the fields that every trainer has."""
    from atwu.training.config import TokenTrainingConfig

    return {field.name for field in dataclasses.fields(TokenTrainingConfig)}


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).split(". ")[0].rstrip(".") + "."


def _default_note(field: dataclasses.Field[Any]) -> str:
    default = field.default
    if default is dataclasses.MISSING or default in (None, "", False, -1):
        return ""
    return f" (default {getattr(default, 'value', default)})"


def _plain_type(hint: Any) -> type | None:
    """The command-line type of a field: bool, int, float or str; None for what only YAML or Python can give."""
    options = [a for a in typing.get_args(hint) if a is not type(None)] if _is_union(hint) else [hint]
    for plain in (bool, int, float, str):
        if plain in options:
            return plain
    return str if any(isinstance(o, type) and issubclass(o, str) for o in options) else None


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def read_yaml(path: Path | None, *, inputs: tuple[str, ...], config: type, presets: bool = False) -> dict[str, Any]:
    """Read a flat YAML of inputs and config fields; what stands under `about` is for people.

    Args:
        path: the file, or None for no values.
        inputs: keys besides the fields.
        config: the dataclass whose fields are keys.
        presets: take a shipped preset such as `tofu-1b/atwu` too, where no file has that name.

    Raises:
        FileNotFoundError: neither a file nor a preset.
        ValueError: not a mapping, a value of the wrong type, or a key that is neither, with the closest known name.
    """
    if path is None:
        return {}
    if not path.is_file():
        path = _preset_file(path) if presets else _no_file(path, "")
    values = parse_yaml(path.read_text(encoding="utf-8"), what=str(path))
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold one 'key: value' per line, got {type(values).__name__}.")
    hints = typing.get_type_hints(config)
    fields = [field.name for field in dataclasses.fields(config) if field.init and field.name not in _RUN_KEYS]
    parts = _part_options(config)
    known = [*inputs, *fields, *parts, _ABOUT]
    values.pop(_ABOUT, None)
    for key in values:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Known keys start with {', '.join(known[:8])}, ..."
            raise ValueError(f"{path}: unknown key {key!r}.{hint}")
    kinds: dict[str, type] = {name: bool if name == "trust_remote_code" else str for name in inputs}
    kinds |= {name: part.kind for name, part in parts.items()}
    return {
        key: _typed(value, kinds.get(key) or _plain_type(hints[key]), where=f"{path}: {key}")
        for key, value in values.items()
        if value is not None
    }


def _preset_file(path: Path) -> Path:
    """File of the preset of that name."""
    from atwu.methods.presets import named_preset

    name = path.as_posix()
    if path.suffix or path.is_absolute() or name.count("/") != 1:
        _no_file(path, "" if path.suffix else " A preset is named like tofu-1b/atwu.")
    try:
        return named_preset(name).path
    except ValueError as error:
        _no_file(path, f" There is {error}")


def _no_file(path: Path, hint: str) -> NoReturn:
    raise FileNotFoundError(f"config {path} not found.{hint}") from None


def _typed(value: Any, kind: type | None, *, where: str) -> Any:
    """A YAML value as the field's type (a whole number for a float, for one)."""
    if kind is None or (isinstance(value, kind) and not (kind is not bool and isinstance(value, bool))):
        return value
    if isinstance(value, str | int | float) and not isinstance(value, bool) and kind is not bool:
        try:
            converted = kind(value)
        except ValueError:
            pass
        else:
            if kind is not int or converted == float(value):
                return converted
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    raise ValueError(f"{where} must be {names[kind]}, got {value!r}.")


def choose(name: str, flag: Any, values: Mapping[str, Any], default: Any = None) -> Any:
    """A flag if given, else the YAML value, else the default."""
    return flag if flag is not None else values.get(name, default)
