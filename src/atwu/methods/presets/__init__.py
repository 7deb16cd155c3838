"""Tuned settings, one small YAML per setting and method: options of a run, and under `about:` where they come from.

A setting is a benchmark with a starting model. `tofu-1b`, `tofu-8b` and `rwku-phi3` hold published values, all from the ATWU
paper but FUNDIAL's, which are in its published code; weights and method parameters of TOFU were tuned on the 1B model, on
8B only the learning rate was searched again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml
from atwu._names import did_you_mean
from atwu.methods.components import component_options

PRESET_FOLDER = Path(__file__).parent
PUBLISHED: Mapping[str, tuple[str, ...]] = {"tofu": ("tofu-1b", "tofu-8b"), "rwku": ("rwku-phi3",)}
"""Settings with published values, by benchmark."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Tuned settings of one method at one setting."""

    setting: str
    """Name of the folder it lies in."""
    method: str
    options: Mapping[str, Any]
    """Options of `UnlearnConfig`, `method` among them."""
    about: Mapping[str, Any]
    """For people: benchmark, model, source, the result it reached. No run reads it."""
    path: Path

    @property
    def name(self) -> str:
        return f"{self.setting}/{self.method}"

    @property
    def values(self) -> dict[str, float]:
        """The hyperparameters of the method among the options."""
        numbers = {name for name, option in component_options().items() if option.number}
        return {key: float(value) for key, value in self.options.items() if key in numbers}


@functools.cache
def find_preset(setting: str, method: str) -> Preset | None:
    """The shipped preset of a method at a setting, if there is one."""
    path = PRESET_FOLDER / setting / f"{method}.yaml"
    return parse_preset(path) if path.is_file() else None


def presets(setting: str) -> dict[str, Preset]:
    """The shipped presets of a setting by method; empty where there are none."""
    names = sorted(path.stem for path in (PRESET_FOLDER / setting).glob("*.yaml")) if setting else []
    return {name: preset for name in names if (preset := find_preset(setting, name)) is not None}


def settings_with_presets() -> tuple[str, ...]:
    """Names of the settings that presets are shipped for."""
    return tuple(sorted(folder.name for folder in PRESET_FOLDER.iterdir() if any(folder.glob("*.yaml"))))


def named_preset(name: str) -> Preset:
    """The shipped preset of a name such as `tofu-1b/atwu`.

    Raises:
        ValueError: no such preset, with those there are.
    """
    setting, _, method = name.partition("/")
    if found := find_preset(setting, method):
        return found
    every = [preset.name for each in settings_with_presets() for preset in presets(each).values()]
    hint = did_you_mean(name, every)
    if presets(setting):
        raise ValueError(f"no preset {name!r}; {setting} has {', '.join(presets(setting))}.{hint}")
    raise ValueError(f"no preset {name!r}; there are presets for {', '.join(settings_with_presets())}.{hint}")


def parse_preset(path: Path) -> Preset:
    """Read a preset without a check of its options.

    Raises:
        ValueError: not a flat YAML with a method.
    """
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold one 'key: value' per line, got {type(values).__name__}.")
    about = values.pop("about", None) or {}
    if not isinstance(about, dict):
        raise ValueError(f"{path}: about must be a mapping, got {about!r}.")
    method = values.get("method")
    if not isinstance(method, str):
        raise ValueError(f"{path}: a preset names its method, as in 'method: atwu', got {method!r}.")
    return Preset(path.absolute().parent.name, method, values, about, path)
