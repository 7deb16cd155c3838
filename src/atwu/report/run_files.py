"""Readers of a run's and a study's record files, validated against declared types.

Unknown keys are allowed, since other versions may write more. Files of schema /1 are converted when read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from atwu._file_reading import file_text, parse_json, read_upgraded_json, type_adapter, validated

StepCount = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Plain = Annotated[str, Field(pattern=r"^[^/\\\x00]+$")]
"""Name of one folder."""


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _Recipe(_File):
    weighting: str | None = None
    forget_loss: str | None = None
    retain_loss: str | None = None
    values: Mapping[str, float] = {}


class _Run(_File):
    seed: Seed
    method: str | None = None
    recipe: _Recipe | None = None
    config: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = {}
    data: Mapping[str, Mapping[str, Any]] = {}
    train_seconds: Seconds | None = None
    steps: StepCount | None = None
    peak_memory_bytes: StepCount | None = None


class _Variant(_File):
    label: str
    budget: str | None = None


class _Setting(_File):
    name: str


class _Study(_File):
    runs: list[Plain]
    name: str | None = None
    title: str | None = None
    about: str | None = None
    command: str | None = None
    budget: str | None = None
    published: str | None = None
    variants: list[_Variant] = []
    setting: _Setting | None = None
    failed: Mapping[str, str] | list[str] | None = None
    left_out: Mapping[str, str] | list[str] | None = None


def read_run(path: Path) -> dict[str, Any]:
    """Read `run.json`; a ValueError names the file and the invalid key."""
    return _read(path, _Run)


def read_study_record(path: Path) -> dict[str, Any]:
    """Read `study.json`; a ValueError names the file and the invalid key."""
    return _read(path, _Study)


def read_log(path: Path) -> tuple[dict[str, Any], ...]:
    """Read `log.jsonl`: lines with a `step` and numbers.

    Raises:
        ValueError: a line is invalid; the message names it.
    """
    found = []
    for number, text in enumerate(file_text(path).split("\n"), start=1):
        if text.strip():
            what = f"{path}, line {number}"
            value = parse_json(text, what=path, first_line=number)
            validated(value, _LOG_LINE, what=what)
            if "step" not in value:
                raise ValueError(f"{what}: the key 'step' is missing; every line of the log needs one.")
            found.append(value)
    return tuple(found)


_LOG_LINE = TypeAdapter(dict[str, Annotated[float, Field(strict=True, allow_inf_nan=False)] | None])


def _read(path: Path, kind: type[_File]) -> dict[str, Any]:
    value: dict[str, Any] = read_upgraded_json(path)
    validated(value, type_adapter(kind), what=str(path))
    return value
