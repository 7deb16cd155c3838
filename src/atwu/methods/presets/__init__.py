"""Presets: tuned options, one YAML file per setting and method; `about:` records where the values come from.

A setting is a benchmark with an original model. `tofu-1b`, `tofu-8b` and `rwku-phi3` hold published values: those of FUNDIAL
are from its code, all others from the ATWU paper. For TOFU, loss weights and method hyperparameters were tuned on the 1B
model; on 8B only the learning rate was searched again.
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
    """Tuned options of one method at one setting."""

    setting: str
    """Name of the preset's folder."""
    method: str
    options: Mapping[str, Any]
    """Options of `UnlearnConfig`, `method` included."""
    about: Mapping[str, Any]
    """Information for readers: benchmark, model, source and result. Not used by runs."""
    path: Path

    @property
    def name(self) -> str:
        return f"{self.setting}/{self.method}"

    @property
    def values(self) -> dict[str, float]:
        """Hyperparameters of the method among the options."""
        numbers = {name for name, option in component_options().items() if option.number}
        return {key: float(value) for key, value in self.options.items() if key in numbers}


@functools.cache
def find_preset(setting: str, method: str) -> Preset | None:
    """Return the shipped preset of a method at a setting, or None."""
    path = PRESET_FOLDER / setting / f"{method}.yaml"
    return parse_preset(path) if path.is_file() else None


def presets(setting: str) -> dict[str, Preset]:
    """Return the shipped presets of a setting by method; empty if it has none."""
    names = sorted(path.stem for path in (PRESET_FOLDER / setting).glob("*.yaml")) if setting else []
    return {name: preset for name in names if (preset := find_preset(setting, name)) is not None}


def settings_with_presets() -> tuple[str, ...]:
    """Return the names of the settings that have shipped presets."""
    return tuple(sorted(folder.name for folder in PRESET_FOLDER.iterdir() if any(folder.glob("*.yaml"))))


def named_preset(name: str) -> Preset:
    """Return the shipped preset with a name such as `tofu-1b/atwu`.

    Raises:
        ValueError: there is no such preset; the message lists the existing ones.
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
    """Read a preset without checking its options.

    Raises:
        ValueError: the file is not a flat YAML mapping with a method.
    """
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold one 'key: value' per line, got {type(values).__name__}.")
    about = values.pop("about", None) or {}
    if not isinstance(about, dict):
        raise ValueError(f"{path}: about must be a mapping, got {about!r}.")
    method = values.get("method")
    if not isinstance(method, str):
        raise ValueError(f"{path}: a preset needs the name of its method, as in 'method: atwu', got {method!r}.")
    return Preset(path.absolute().parent.name, method, values, about, path)
