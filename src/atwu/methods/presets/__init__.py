"""Tuned settings, one small YAML per scale and method: options of a run, and under `about:` where they come from.

A scale is a benchmark with a starting model. `tofu-1b`, `tofu-8b` and `rwku-phi3` hold published values, all from the ATWU
paper but FUNDIAL's, which are in its published code; weights and method parameters of TOFU were tuned on the 1B model, on
8B only the learning rate was searched again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._names import did_you_mean
from atwu._reading import read_yaml
from atwu.methods.parts import part_options

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
        numbers = {name for name, option in part_options().items() if option.number}
        return {key: float(value) for key, value in self.options.items() if key in numbers}


@functools.cache
def find_preset(scale: str, method: str) -> Preset | None:
    """The shipped preset of a method at a scale, if there is one."""
    path = FOLDER / scale / f"{method}.yaml"
    return parse_preset(path) if path.is_file() else None


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
    hint = did_you_mean(name, every)
    if presets(scale):
        raise ValueError(f"no preset {name!r}; {scale} has {', '.join(presets(scale))}.{hint}")
    raise ValueError(f"no preset {name!r}; there are presets for {', '.join(scales_with_presets())}.{hint}")


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
