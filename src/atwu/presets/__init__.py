"""Tuned settings, one small YAML per scale and method: options of a run, and under `about:` where they come from.

A scale is a benchmark with a starting model. `tofu-1b`, `tofu-8b` and `rwku-phi3` hold published values, all from the ATWU
paper but FUNDIAL's, which are in its published code; weights and method parameters of TOFU were tuned on the 1B model, on
8B only the learning rate was searched again.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from atwu._yaml import parse_yaml
from atwu.methods.hyperparameters import HYPERPARAMETERS

FOLDER = Path(__file__).parent
PUBLISHED: Mapping[str, tuple[str, ...]] = {"tofu": ("tofu-1b", "tofu-8b"), "rwku": ("rwku-phi3",)}
"""Scales with published values, by benchmark."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Tuned settings of one method at one scale."""

    scale: str
    """Name of the folder it lies in."""
    method: str
    options: Mapping[str, Any]
    """Options of `UnlearnConfig`, `method` among them."""
    about: Mapping[str, Any]
    """For people: benchmark, model, source, the result it reached. No run reads it."""
    path: Path

    @property
    def name(self) -> str:
        return f"{self.scale}/{self.method}"

    @property
    def values(self) -> dict[str, float]:
        """The hyperparameters of the method among the options."""
        return {key: float(value) for key, value in self.options.items() if key in HYPERPARAMETERS}


def read_preset(path: str | Path) -> Preset:
    """Read and check a preset.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a flat YAML with a method, or an option that no run has.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"preset {path} not found.")
    preset = _parse(path)
    _check(preset.options, where=str(path))
    return preset


def write_preset(path: str | Path, options: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write a preset in one step; its folder is made if need be.

    Args:
        path: file to write, best named SCALE/METHOD.yaml.
        options: options of `UnlearnConfig`, with the method.
        about: where they come from, as plain data.

    Raises:
        ValueError: an option that no run has, or no method.
    """
    path = Path(path)
    _check(options, where=str(path))
    shipped = path.resolve().is_relative_to(FOLDER)
    use = f"{path.parent.name}/{path.stem}" if shipped else path.name
    head = f"# atwu unlearn --config {use} --model MODEL --forget ROWS --retain ROWS --output FOLDER\n"
    first = ["method", "learning_rate", "forget_weight", "retain_weight"]
    keys = sorted(options, key=lambda key: first.index(key) if key in first else len(first))
    body = {**{key: options[key] for key in keys}, "about": dict(about)}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=120)
    temporary.write_text(head + text, encoding="utf-8")
    os.replace(temporary, path)


@functools.cache
def find_preset(scale: str, method: str) -> Preset | None:
    """The shipped preset of a method at a scale, if there is one."""
    path = FOLDER / scale / f"{method}.yaml"
    return _parse(path) if path.is_file() else None


def presets(scale: str) -> dict[str, Preset]:
    """The shipped presets of a scale by method; empty where there are none."""
    names = sorted(path.stem for path in (FOLDER / scale).glob("*.yaml")) if scale else []
    return {name: preset for name in names if (preset := find_preset(scale, name)) is not None}


def scales_with_presets() -> tuple[str, ...]:
    """Names of the scales that presets are shipped for."""
    return tuple(sorted(folder.name for folder in FOLDER.iterdir() if any(folder.glob("*.yaml"))))


def named_preset(name: str) -> Preset:
    """The shipped preset of a name such as `tofu-1b/atwu`.

    Raises:
        ValueError: no such preset, with those there are.
    """
    scale, _, method = name.partition("/")
    if found := find_preset(scale, method):
        return found
    every = [preset.name for each in scales_with_presets() for preset in presets(each).values()]
    close = difflib.get_close_matches(name, every, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if presets(scale):
        raise ValueError(f"no preset {name!r}; {scale} has {', '.join(presets(scale))}.{hint}")
    raise ValueError(f"no preset {name!r}; there are presets for {', '.join(scales_with_presets())}.{hint}")


def _parse(path: Path) -> Preset:
    values = parse_yaml(path.read_text(encoding="utf-8"), what=str(path))
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold one 'key: value' per line, got {type(values).__name__}.")
    about = values.pop("about", None) or {}
    if not isinstance(about, dict):
        raise ValueError(f"{path}: about must be a mapping, got {about!r}.")
    if "method" not in values:
        raise ValueError(f"{path}: a preset names its method, as in 'method: atwu'.")
    return Preset(path.absolute().parent.name, str(values["method"]), values, about, path)


def _check(options: Mapping[str, Any], *, where: str) -> None:
    from atwu.training.config import UnlearnConfig

    if "method" not in options:
        raise ValueError(f"{where}: a preset names its method, as in 'method: atwu'.")
    known = [field.name for field in dataclasses.fields(UnlearnConfig) if field.init and field.name != "output_dir"]
    for key, value in options.items():
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else " Say what is no option under 'about'."
            raise ValueError(f"{where}: unknown option {key!r}.{hint}")
        if not isinstance(value, str | int | float | bool):
            raise ValueError(f"{where}: {key} must be a number, text, true or false, got {value!r}.")
