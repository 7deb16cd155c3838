"""What a scale is: a benchmark with a starting model, the settings that all methods share, and what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atwu.benchmarks.load import OwnRows
from atwu.report.values import Line


@dataclass(frozen=True, slots=True)
class Taught:
    """A starting model that is trained for its benchmark first, from nothing or from another model."""

    training: Mapping[str, Any]
    """Fields of `FinetuneConfig`."""
    shape: str | None = None
    """From nothing: a name in `atwu.modeling.scratch.SHAPES`."""
    model: str | None = None
    """From a model: folder, Hub name or short name."""

    def __post_init__(self) -> None:
        if (self.shape is None) == (self.model is None):
            raise ValueError("a target that is trained first needs a shape (from nothing) or a model, one of the two.")

    def __str__(self) -> str:
        return f"trained from scratch ({self.shape})" if self.model is None else f"{self.model}, taught the benchmark"


@dataclass(frozen=True, slots=True)
class Scale:
    """One setting in which methods are compared."""

    name: str
    about: str
    benchmark: str | OwnRows
    """A name that `load_benchmark` takes, or rows of one's own."""
    target: str | Taught
    """Starting model: folder or Hub name, or how to train it."""
    retain_only: str | None = None
    """A model that never saw the forget rows, where one is published."""
    presets: str | None = None
    """Scale whose tuned values its methods start from; its own name by default."""
    train_retain_only: bool = True
    """Train one, with a `Taught` target."""
    forget: str | None = None
    """Source of the rows to remove, instead of the benchmark's own."""
    retain: str | None = None
    """Source of the rows to keep, likewise."""
    paired: str | None = None
    """Source of the rows to remove for methods that prefer another answer, each with its own."""
    wordings: tuple[str, ...] = ()
    """Files with other wordings of measured questions, as `atwu paraphrase` writes them."""
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
    taught_seconds: float = 0.0
    """Training the starting and the retain-only model, roughly, where the cache has neither."""
    product_speed: float | None = None
    """GFLOP/s of float32 products on the core where both were measured, where it is these that take the time."""
