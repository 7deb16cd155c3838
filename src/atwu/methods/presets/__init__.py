"""Presets: tuned options of methods, one YAML table per setting.

A setting is a benchmark with an original model. `tofu-1b`, `tofu-8b` and `rwku-phi3` hold published values: those of FUNDIAL
are from its code, all others from the ATWU paper. For TOFU, loss weights and method hyperparameters were tuned on the 1B
model; on 8B only the learning rate was searched again. In a table, `options` hold for every method and `methods` has those
of each; `about` and `details` record in the same way where the values come from.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml
from atwu._names import did_you_mean
from atwu.methods.component_registry import component_options

PUBLISHED: Mapping[str, tuple[str, ...]] = {"tofu": ("tofu-1b", "tofu-8b"), "rwku": ("rwku-phi3",)}


@dataclass(frozen=True, slots=True)
class Preset:
    setting: str
    method: str
    options: Mapping[str, Any]
    """Options of `UnlearnConfig`, `method` included."""
    about: Mapping[str, Any]
    """Information for readers, such as benchmark, model and source. Not used by runs."""

    @property
    def name(self) -> str:
        return f"{self.setting}/{self.method}"

    @property
    def values(self) -> dict[str, float]:
        """Hyperparameters of the method among the options."""
        numbers = {name for name, option in component_options().items() if option.number}
        return {key: float(value) for key, value in self.options.items() if key in numbers}


@functools.cache
def settings_with_presets() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.yaml")))


@functools.cache
def shipped_presets(setting: str) -> Mapping[str, Preset]:
    """Return the shipped presets of a setting by method; empty if it has none."""
    if setting not in settings_with_presets():
        return {}
    table = read_yaml(Path(__file__).with_name(f"{setting}.yaml"))
    return {
        method: Preset(
            setting,
            method,
            {"method": method, **table["options"], **own},
            {**table["about"], **table["details"].get(method, {})},
        )
        for method, own in table["methods"].items()
    }


def named_preset(name: str) -> Preset:
    """Return the shipped preset with a name such as `tofu-1b/atwu`."""
    setting, _, method = name.partition("/")
    preset = shipped_presets(setting).get(method)
    if preset is not None:
        return preset
    names = [shipped.name for known in settings_with_presets() for shipped in shipped_presets(known).values()]
    hint = did_you_mean(name, names)
    if shipped_presets(setting):
        raise ValueError(f"no preset {name!r}; {setting} has {', '.join(shipped_presets(setting))}.{hint}")
    raise ValueError(f"no preset {name!r}; there are presets for {', '.join(settings_with_presets())}.{hint}")
