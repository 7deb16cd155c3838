"""Scales: a benchmark with a starting model, the training settings that all methods share, and what is measured.

`people-*`, `tofu-small` and `rwku-small` train their starting model from scratch and run on a laptop; `tofu-1b`, `tofu-8b` and
`rwku-phi3` are those of the ATWU paper and start from published checkpoints.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atwu.data.people import SIZES

Line = tuple[str, str]
"""Set (or "overall") and metric."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A starting model that is trained for its benchmark first."""

    shape: str
    """Name in `atwu.modeling.scratch.SHAPES`."""
    training: Mapping[str, Any]
    """Fields of `FinetuneConfig`."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One setting in which methods are compared."""

    name: str
    about: str
    benchmark: str
    """A name that `load_benchmark` takes."""
    target: str | Scratch
    """Starting model: folder or Hub name, or how to train it."""
    retain_only: str | None = None
    """A model that never saw the forget rows, where one is published; with a `Scratch` target one is trained."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `UnlearnConfig` shared by all methods."""
    learning_rate: float = 2e-5
    """Where searches start, and what a method without a preset gets."""
    learning_rates: tuple[float, float] = (1e-6, 5e-5)
    """Search range."""
    objective: Line = ("overall", "ES_delta")
    """What tuning makes large."""
    metrics: tuple[str, ...] = ("memorization", "scores", "rouge", "judge", "membership", "open_ended")
    """Groups of metrics that a study measures."""
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `EvaluateConfig`."""
    surrogate: str | None = None
    """Cheaper scale on which a two-stage search looks for everything but the learning rate."""
    seconds: float = 60.0
    """One run with its evaluation, roughly, for the estimate before any run of the study is finished."""
    hardware: str = "one CPU core"
    """Where `seconds` was measured or taken from."""


_SMALL = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "warmup_steps": 0.1,
    "save_strategy": "no",
}
_SCRATCH_RATES = (3e-5, 3e-3)
_PANEL = ("memorization", "scores", "rouge", "judge", "truth_ratio", "membership", "open_ended")
_PAPER = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 4,
    "weight_decay": 0.01,
    "max_length": 512,
    "gradient_checkpointing": True,
}
_TOFU = _PAPER | {"num_train_epochs": 10, "warmup_steps": 0.1, "bf16": True}


def _people(size: str, *, about: str, epochs: int, seconds: float, **changes: Any) -> Scale:
    spec = SIZES[size]
    target = Scratch(
        f"people-{size}",
        {
            "learning_rate": spec.learning_rate,
            "num_train_epochs": spec.epochs,
            "per_device_train_batch_size": spec.batch_size,
            "warmup_steps": 0.05,
            "weight_decay": 0.0,
            "save_strategy": "no",
        },
    )
    return Scale(
        name=f"people-{size}",
        about=about,
        benchmark=f"people:{size}",
        target=target,
        training=_SMALL | {"num_train_epochs": epochs},
        learning_rate=3e-4,
        learning_rates=_SCRATCH_RATES,
        evaluation={"relearn_learning_rate": 3e-4},
        seconds=seconds,
        **changes,
    )


_SCALES = (
    _people(
        "tiny",
        about="24 rows about 4 invented people; seconds per run",
        epochs=33,
        seconds=6.0,
        metrics=("memorization", "scores", "rouge", "judge"),
    ),
    _people(
        "small",
        about="80 rows about 8 invented people; half a minute per run",
        epochs=10,
        seconds=35.0,
        surrogate="people-tiny",
        metrics=(*_PANEL, "families", "relearning", "quantisation"),
    ),
)

SCALES: dict[str, Scale] = {scale.name: scale for scale in _SCALES}


def find_scale(name: str) -> Scale:
    """The scale of that name.

    Raises:
        ValueError: there is none.
    """
    if name in SCALES:
        return SCALES[name]
    close = difflib.get_close_matches(name, SCALES, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown scale {name!r}; choose from {', '.join(SCALES)}.{hint}")


def scale_from(values: Mapping[str, Any]) -> Scale:
    """A scale written in a study's file: fields of `Scale`, on top of those of the scale named `like`.

    Raises:
        ValueError: unknown fields, or fields that are missing.
    """
    known = {entry.name: entry for entry in dataclasses.fields(Scale)}
    unknown = sorted(set(values) - {*known, "like"})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} of a scale; it has {', '.join(known)}, and like.")
    base = find_scale(str(values["like"])) if "like" in values else None
    given = {name: _plain(name, value) for name, value in values.items() if name != "like"}
    if base is not None:
        return dataclasses.replace(base, **({"name": f"{base.name}-changed"} | given))
    missing = [name for name in ("name", "benchmark", "target") if name not in given]
    if missing:
        raise ValueError(f"a scale needs {', '.join(missing)}, or `like: SCALE` to start from one of {', '.join(SCALES)}.")
    return Scale(**({"about": "", **given}))


def _plain(name: str, value: Any) -> Any:
    """A value from YAML as the field wants it."""
    if name == "target" and isinstance(value, Mapping):
        return Scratch(**value)
    return tuple(value) if isinstance(value, list) else value
