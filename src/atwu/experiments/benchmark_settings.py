"""Settings: a benchmark with an original model, the options shared by all methods, and the evaluation.

Built-in settings are in `benchmark_settings.yaml`. `people-*`, `tofu-small` and `rwku-small` train their original model
from scratch and run on a laptop; `*-smollm2` start from a pretrained model of 135M parameters and need a night on a
laptop; `tofu-1b`, `tofu-8b` and `rwku-phi3` are those of the ATWU paper and start from published checkpoints.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, create_model

from atwu._file_reading import prefix_errors, read_mapping, read_yaml, validated
from atwu._names import lookup
from atwu.benchmarks.sources import OwnRows
from atwu.evaluation.result import STRICT
from atwu.methods.presets import settings_with_presets
from atwu.report.metric_table import MetricKey


@dataclass(frozen=True, slots=True)
class FinetunedTarget:
    """An original model that is first fine-tuned on its benchmark, from scratch or from another model."""

    training: Mapping[str, Any]
    """Fields of `FinetuneConfig`."""
    shape: str | None = None
    """Architecture to train from scratch: a name in `atwu.modeling.scratch.SHAPES`."""
    model: str | None = None
    """Model to fine-tune: folder, Hub name or short name."""

    def __post_init__(self) -> None:
        if (self.shape is None) == (self.model is None):
            raise ValueError(
                "a target to be trained needs either a shape (from scratch) or a model, exactly one of them."
            )

    def __str__(self) -> str:
        if self.model:
            return f"{self.model}, fine-tuned on the benchmark"
        return f"trained from scratch ({self.shape})"


@dataclass(frozen=True, slots=True)
class BenchmarkSetting:
    """A setting in which methods are compared: model, benchmark and budget."""

    name: str
    about: str
    benchmark: str | OwnRows
    """Benchmark name for `load_benchmark`, or the user's own rows."""
    target: str | FinetunedTarget
    """Original model: folder or Hub name, or how to train it."""
    retain_only: str | None = None
    presets: str | None = None
    """Setting whose tuned values are used; by default its own name."""
    train_retain_only: bool = True
    """Train a retain-only model, if the target is a `FinetunedTarget`."""
    forget: str | None = None
    """Source of the forget set, instead of the benchmark's."""
    retain: str | None = None
    paired: str | None = None
    """Source of the forget set with preferred answers, for methods that use them."""
    paraphrases: tuple[str, ...] = ()
    """Files with paraphrases of evaluated questions, as `atwu rows paraphrases` writes them."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `UnlearnConfig` shared by all methods."""
    learning_rate: float = 2e-5
    """First value of searches, and the default for methods without a preset."""
    learning_rates: tuple[float, float] = (1e-6, 5e-5)
    first_rates: tuple[float, ...] = ()
    """Learning rates of a search's first trials, in turn, instead of `learning_rate`; the same for all methods
    compared."""
    objective: MetricKey = ("overall", "ES_delta")
    metrics: tuple[str, ...] = ("memorization", "scores", "rouge", "judge", "membership", "open_ended")
    """Groups of metrics that a study computes."""
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    surrogate: str | None = None
    """Cheaper setting on which a two-stage search tunes everything but the learning rate."""
    seconds: float = 60.0
    """Approximate duration of one run with its evaluation, for estimates before the first finished run."""
    hardware: str = "one CPU core"
    """Hardware on which `seconds` was measured, or source of the number."""
    target_seconds: float = 0.0
    """Approximate duration of training the original and the retain-only model, if they are not cached."""

    def __post_init__(self) -> None:
        low, high = self.learning_rates
        outside = [rate for rate in self.first_rates if not low <= rate <= high]
        if outside:
            raise ValueError(
                f"first_rates of a setting must be within its learning_rates, {low:g} to {high:g}; got "
                f"{', '.join(f'{rate:g}' for rate in outside)}."
            )


FILE = Path(__file__).with_name("benchmark_settings.yaml")
BENCHMARK_SETTINGS: dict[str, BenchmarkSetting] = {}


def find_setting(name: str) -> BenchmarkSetting:
    """Return the setting of a name or YAML file."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise ValueError(f"setting {path} not found; give a file, or one of {', '.join(BENCHMARK_SETTINGS)}.")
        with prefix_errors(path):
            return setting_from({"name": path.stem} | read_mapping(path))
    setting: BenchmarkSetting = lookup("setting", name, BENCHMARK_SETTINGS)
    return setting


def setting_from(values: Mapping[str, Any]) -> BenchmarkSetting:
    """Build a setting from a study's file: fields of `BenchmarkSetting`, on top of those of the setting named `like`.

    Keys of `training` and `evaluation` are set one by one. Another target or benchmark drops the other's retain-only
    model, sources, system prompt, tuned values and surrogate; other rows of the same benchmark drop only the first two.
    """
    known = {entry.name: entry for entry in dataclasses.fields(BenchmarkSetting)}
    for name in values:
        lookup("key of a setting", name, {**known, "like": None})
    validated(dict(values), _WRITTEN, what="a setting")
    if values.get("presets") is not None:
        lookup("setting with tuned values", values["presets"], dict.fromkeys(settings_with_presets()))
    setting = _setting(values)
    if setting.name in BENCHMARK_SETTINGS:
        raise ValueError(
            f"{setting.name} is a built-in setting whose tuned values do not apply to this one; choose another name."
        )
    return setting


def _setting(values: Mapping[str, Any]) -> BenchmarkSetting:
    fields: dict[str, Any] = {name: _plain(name, value) for name, value in values.items() if name != "like"}
    if "like" not in values:
        missing = [name for name in ("name", "benchmark", "target") if name not in fields]
        if missing:
            raise ValueError(
                f"a setting needs {', '.join(missing)}, or `like: SETTING` to start from one of "
                f"{', '.join(BENCHMARK_SETTINGS)}."
            )
        return BenchmarkSetting(**({"about": ""} | fields))
    base = find_setting(str(values["like"]))
    fields.setdefault("name", f"{base.name}-changed")
    for name in ("training", "evaluation"):
        fields[name] = {**getattr(base, name), **fields.get(name, {})}
    if {"target", "benchmark"} & set(fields):  # these belong to other rows
        fields = {"retain_only": None, "forget": None, "retain": None, "paired": None} | fields
    # `people:tiny` and `people:small` are the same benchmark with other rows.
    before, after = (
        benchmark.partition(":")[0] if isinstance(benchmark, str) else benchmark
        for benchmark in (base.benchmark, fields.get("benchmark", base.benchmark))
    )
    if "target" not in fields and before == after:
        # On the left: what the setting gives itself stays.
        fields = {"presets": base.presets or base.name} | fields
    else:
        fields = {"surrogate": None, "presets": None} | fields
        for name in ("training", "evaluation"):
            if "system" not in (values.get(name) or {}):
                fields[name].pop("system", None)
    return dataclasses.replace(base, **fields)


_RATE = Annotated[float, Field(gt=0)]
# What pydantic checks before a setting is built, so that errors name the key of the file.
_KINDS = typing.get_type_hints(BenchmarkSetting) | {
    "like": str,
    "seconds": Annotated[float, Field(ge=0)],
    "objective": tuple[str, str],
    "learning_rate": _RATE,
    "learning_rates": tuple[_RATE, _RATE],
    "first_rates": tuple[_RATE, ...],
    **dict.fromkeys(("benchmark", "target"), str | dict[str, Any]),  # see `_plain`
}
"""Field of a setting in a file -> its type."""
_FIELDS: Any = {name: (kind, None) for name, kind in _KINDS.items()}
_WRITTEN = TypeAdapter(create_model("fields", __config__=STRICT, **_FIELDS))


def _plain(name: str, value: Any) -> Any:
    kinds = {"target": FinetunedTarget, "benchmark": OwnRows}
    if name in kinds and isinstance(value, Mapping):
        try:
            return kinds[name](**value)
        except TypeError:
            fields = ", ".join(entry.name for entry in dataclasses.fields(kinds[name]))
            raise ValueError(f"{name} of a setting must be a name or have {fields}; got {', '.join(value)}.") from None
    if isinstance(value, list):  # YAML has no tuples
        return tuple(value)
    return value


# One after another, in the order of the file: a setting may be like an earlier one.
for _name, _values in read_yaml(FILE).items():
    BENCHMARK_SETTINGS[_name] = _setting({"name": _name} | _values)
