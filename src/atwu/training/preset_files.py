"""Read and write preset files of the user, with every option checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from atwu._file_reading import read_yaml
from atwu._files import write_text
from atwu._names import did_you_mean
from atwu.methods.presets import Preset
from atwu.training.config import option_names


def read_preset(path: str | Path) -> Preset:
    """Read and check a preset: one 'option: value' per line, `method` among them, and a mapping `about`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"preset {path} not found; give an existing YAML file.")
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold one 'key: value' per line, got {type(values).__name__}.")
    about = values.pop("about", None) or {}
    if not isinstance(about, dict):
        raise ValueError(f"{path}: about must be a mapping, got {about!r}.")
    _check(values, where=str(path))
    return Preset(path.absolute().parent.name, values["method"], values, about)


def write_preset(path: str | Path, options: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write a preset atomically, creating its folder if needed."""
    path = Path(path)
    _check(options, where=str(path))
    head = f"# atwu unlearn --config {path.name} --model MODEL --forget ROWS --retain ROWS --output FOLDER\n"
    first = ["method", "learning_rate", "forget_weight", "retain_weight"]
    keys = sorted(options, key=lambda key: first.index(key) if key in first else len(first))
    body = {**{key: options[key] for key in keys}, "about": dict(about)}
    write_text(path, head + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=120))


def _check(options: Mapping[str, Any], *, where: str) -> None:
    if not isinstance(options.get("method"), str):
        raise ValueError(f"{where}: a preset needs the name of its method, as in 'method: atwu'.")
    known = sorted(option_names() - {"output_dir"})
    for key, value in options.items():
        if key not in known:
            hint = did_you_mean(key, known, " Put everything that is not an option under 'about'.")
            raise ValueError(f"{where}: unknown option {key!r}.{hint}")
        if not isinstance(value, str | int | float | bool):
            raise ValueError(f"{where}: {key} must be a number, text, true or false, got {value!r}.")
