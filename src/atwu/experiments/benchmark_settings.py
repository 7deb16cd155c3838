"""Settings: a benchmark with a starting model, the settings that all methods share, and what is measured; by name, from
`benchmark_settings.yaml`, or from a file of one's own.

`people-*`, `tofu-small` and `rwku-small` train their starting model from scratch and run on a laptop; `*-smollm2` start from a
pretrained model of 135M parameters and need a night on one; `tofu-1b`, `tofu-8b` and `rwku-phi3` are those of the ATWU paper
and start from published checkpoints.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from atwu._file_reading import prefix_errors, read_yaml, validated
from atwu._names import lookup
from atwu.benchmarks.load import OwnRows
from atwu.benchmarks.people.people_rows import SIZES
from atwu.methods.presets import settings_with_presets
from atwu.report.table_values import TableLine

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class FinetunedTarget:
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
class BenchmarkSetting:
    """One setting in which methods are compared."""

    name: str
    about: str
    benchmark: str | OwnRows
    """A name that `load_benchmark` takes, or rows of one's own."""
    target: str | FinetunedTarget
    """Starting model: folder or Hub name, or how to train it."""
    retain_only: str | None = None
    """A model that never saw the forget rows, where one is published."""
    presets: str | None = None
    """Setting whose tuned values its methods start from; its own name by default."""
    train_retain_only: bool = True
    """Train one, with a `FinetunedTarget` target."""
    forget: str | None = None
    """Source of the rows to remove, instead of the benchmark's own."""
    retain: str | None = None
    """Source of the rows to keep, likewise."""
    paired: str | None = None
    """Source of the rows to remove for methods that prefer another answer, each with its own."""
    paraphrases: tuple[str, ...] = ()
    """Files with other wordings of measured questions, as `atwu paraphrase` writes them."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `UnlearnConfig` shared by all methods."""
    learning_rate: float = 2e-5
    """Where searches start, and what a method without a preset gets."""
    learning_rates: tuple[float, float] = (1e-6, 5e-5)
    """Search range."""
    first_rates: tuple[float, ...] = ()
    """Learning rates of a search's first trials, in turn, instead of `learning_rate`: the same few for all that is compared."""
    objective: TableLine = ("overall", "ES_delta")
    """What tuning makes large."""
    metrics: tuple[str, ...] = ("memorization", "scores", "rouge", "judge", "membership", "open_ended")
    """Groups of metrics that a study measures."""
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `EvaluateConfig`."""
    surrogate: str | None = None
    """Cheaper setting on which a two-stage search looks for everything but the learning rate."""
    seconds: float = 60.0
    """One run with its evaluation, roughly, for the estimate before any run of the study is finished."""
    hardware: str = "one CPU core"
    """Where `seconds` was measured or taken from."""
    taught_seconds: float = 0.0
    """Training the starting and the retain-only model, roughly, where the cache has neither."""
    product_speed: float | None = None
    """GFLOP/s of float32 products on the core where both were measured, where it is these that take the time."""

    def __post_init__(self) -> None:
        low, high = self.learning_rates
        if outside := [rate for rate in self.first_rates if not low <= rate <= high]:
            raise ValueError(
                f"first_rates of a setting lie within its learning_rates, {low:g} to {high:g}; "
                f"got {', '.join(f'{rate:g}' for rate in outside)}."
            )


FILE = Path(__file__).with_name("benchmark_settings.yaml")
BENCHMARK_SETTINGS: dict[str, BenchmarkSetting] = {}
"""Those that come with the package, by name."""


def find_setting(name: str) -> BenchmarkSetting:
    """The setting of that name, or the one written in a YAML file; `tiny` and `small` are those of the embedded benchmark.

    Raises:
        ValueError: there is none.
    """
    if name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    name = f"people-{name}" if name in SIZES else name
    setting: BenchmarkSetting = lookup("setting", name, BENCHMARK_SETTINGS)
    return setting


def _read(path: Path) -> BenchmarkSetting:
    if not path.is_file():
        raise ValueError(f"setting {path} not found; give a file, or one of {', '.join(BENCHMARK_SETTINGS)}.")
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold fields of a setting, one 'key: value' per line.")
    with prefix_errors(path):
        return setting_from({"name": path.stem} | values)


def setting_from(values: Mapping[str, Any]) -> BenchmarkSetting:
    """A setting written in a study's file: fields of `BenchmarkSetting`, on top of those of the setting named `like`.

    Keys of `training` and `evaluation` are set one by one. Another target or benchmark leaves the other's retain-only model,
    sources, system turn, tuned values and surrogate behind; other rows of the same benchmark leave the first two.

    Raises:
        ValueError: unknown fields, or fields that are missing.
    """
    known = {entry.name: entry for entry in dataclasses.fields(BenchmarkSetting)}
    for name in values:
        lookup("key of a setting", name, {**known, "like": None})
    validated(dict(values), _written(), what="a setting")
    if values.get("presets") is not None:
        lookup("setting with tuned values", values["presets"], dict.fromkeys(settings_with_presets()))
    setting = _setting(values)
    if setting.name in BENCHMARK_SETTINGS:
        raise ValueError(
            f"{setting.name} is a built-in setting, whose tuned values are not this one's; take another name."
        )
    return setting


def _setting(values: Mapping[str, Any]) -> BenchmarkSetting:
    """A setting from its fields as YAML has them."""
    base = find_setting(str(values["like"])) if "like" in values else None
    given: dict[str, Any] = {name: _plain(name, value) for name, value in values.items() if name != "like"}
    if base is None:
        if missing := [name for name in ("name", "benchmark", "target") if name not in given]:
            raise ValueError(
                f"a setting needs {', '.join(missing)}, or `like: SCALE` to start from one of {', '.join(BENCHMARK_SETTINGS)}."
            )
        return BenchmarkSetting(**({"about": ""} | given))
    given.setdefault("name", f"{base.name}-changed")
    for name in ("training", "evaluation"):
        given[name] = {**getattr(base, name), **given.get(name, {})}
    if {"target", "benchmark"} & set(given):  # what belongs to the other rows
        given = {"retain_only": None, "forget": None, "retain": None, "paired": None} | given
    if "target" not in given and _of_one_benchmark(base.benchmark, given.get("benchmark", base.benchmark)):
        given = {"presets": base.presets or base.name} | given
    else:
        given = {"surrogate": None, "presets": None} | given
        for name in ("training", "evaluation"):
            if "system" not in (values.get(name) or {}):
                given[name].pop("system", None)
    return dataclasses.replace(base, **given)


@functools.cache
def _written() -> TypeAdapter[Any]:
    """What a setting's fields may hold in a file."""
    from pydantic import ConfigDict, Field, TypeAdapter, create_model

    hints = typing.get_type_hints(BenchmarkSetting)
    rate = Annotated[float, Field(gt=0)]
    kinds = hints | {"like": str, "learning_rate": rate, "learning_rates": tuple[rate, rate]}
    kinds["first_rates"] = tuple[rate, ...]
    kinds |= dict.fromkeys(("benchmark", "target"), str | dict[str, Any])  # see `_plain`
    kinds |= {"seconds": Annotated[float, Field(ge=0)], "objective": tuple[str, str]}
    fields: Any = {name: (kind, None) for name, kind in kinds.items()}
    return TypeAdapter(create_model("fields", __config__=ConfigDict(strict=True, allow_inf_nan=False), **fields))


def _of_one_benchmark(one: str | OwnRows, other: str | OwnRows) -> bool:
    names = [each.partition(":")[0] if isinstance(each, str) else each for each in (one, other)]
    return names[0] == names[1]


def _plain(name: str, value: Any) -> Any:
    """A value from YAML as the field wants it."""
    kinds = {"target": FinetunedTarget, "benchmark": OwnRows}
    if name in kinds and isinstance(value, Mapping):
        try:
            return kinds[name](**value)
        except TypeError:
            fields = ", ".join(entry.name for entry in dataclasses.fields(kinds[name]))
            raise ValueError(f"{name} of a setting is a name or has {fields}; got {', '.join(value)}.") from None
    return tuple(value) if isinstance(value, list) else value


for _name, _values in read_yaml(FILE).items():
    BENCHMARK_SETTINGS[_name] = _setting({"name": _name} | _values)
