"""Scales: a benchmark with a starting model, the training settings that all methods share, and what is measured.

`people-*`, `tofu-small` and `rwku-small` train their starting model from scratch and run on a laptop; `*-smollm2` start from a
pretrained model of 135M parameters and need a night on one; `tofu-1b`, `tofu-8b` and `rwku-phi3` are those of the ATWU paper
and start from published checkpoints.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from atwu._names import lookup
from atwu._reading import blamed, checked, read_yaml
from atwu.benchmarks.load import OwnRows
from atwu.benchmarks.people.rows import SIZES
from atwu.experiments.scale import Scale, Taught
from atwu.methods.presets import scales_with_presets

if TYPE_CHECKING:
    from pydantic import TypeAdapter


_SMALL = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "warmup_steps": 0.1,
    "save_strategy": "no",
    "noun_finder": "simple",
}
_SCRATCH_RATES = (3e-5, 3e-3)
_PANEL = ("memorization", "scores", "rouge", "judge", "truth_ratio", "membership", "open_ended")
_PAPER = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 4,
    "weight_decay": 0.01,
    "max_length": 512,
    "activation_checkpointing": True,
    "dataloader_drop_last": True,  # 120, 60 and 10 steps on forget10, 05 and 01, as the authors' transformers took them
}
_TOFU_SYSTEM = "You are a helpful assistant."
"""Of the published TOFU models' training."""
_TOFU = _PAPER | {"num_train_epochs": 10, "warmup_steps": 0.1, "bf16": True, "system": _TOFU_SYSTEM}


def _memorised(shape: str, *, rate: float, length: Mapping[str, int], batch_size: int = 16) -> Taught:
    """Settings under which small models repeat their rows word for word."""
    training = {
        "learning_rate": rate,
        **length,
        "per_device_train_batch_size": batch_size,
        "warmup_steps": 0.05,
        "weight_decay": 0.0,
        "save_strategy": "no",
    }
    return Taught(training, shape=shape)


_SMOLLM2 = Taught(
    {
        "learning_rate": 3e-4,
        "num_train_epochs": 5,
        "per_device_train_batch_size": 8,
        "warmup_steps": 0.05,
        "weight_decay": 0.0,
        "save_strategy": "epoch",
    },
    model="smollm2",
)
"""Rows repeated word for word after some twenty minutes on a core (loss .03 on TOFU)."""
_SMOLLM2_SCALE: dict[str, Any] = {
    "learning_rate": 5e-5,
    "learning_rates": (1e-5, 2e-4),
    "training": _SMALL | {"num_train_epochs": 4},
    "evaluation": {"relearn_learning_rate": 5e-5, "paraphrases": 0},
    "metrics": ("memorization", "scores", "rouge", "judge", "membership"),
    "seconds": 1620.0,
    "taught_seconds": 2460.0,
    "product_speed": 131.0,
    "hardware": "one core of an Intel Xeon with AVX-512",
}
KNOWN_TO_SMOLLM2 = (
    "Mark Hamill",
    "Danny Trejo",
    "Paul Walker",
    "Prince Harry, Duke of Sussex",
    "Henry Kissinger",
    "Reba McEntire",
)
"""Subjects of RWKU whose questions SmolLM2 answers best of the first 40 (ROUGE-L recall of six short answers each, .29 to .48;
the mean is .14)."""


def _people(size: str, *, about: str, epochs: int, rate: float, seconds: float, **changes: Any) -> Scale:
    spec = SIZES[size]
    target = _memorised(
        f"people-{size}", rate=spec.learning_rate, length={"num_train_epochs": spec.epochs}, batch_size=spec.batch_size
    )
    return Scale(
        name=f"people-{size}",
        about=about,
        benchmark=f"people:{size}",
        target=target,
        training=_SMALL | {"num_train_epochs": epochs},
        learning_rate=rate,
        learning_rates=_SCRATCH_RATES,
        evaluation={"relearn_learning_rate": 3e-4},
        seconds=seconds,
        **changes,
    )


_RETAIN_ONLY = {"forget10": "retain90", "forget05": "retain95", "forget01": "retain99"}
"""Split of TOFU -> the published model that never saw it."""


def _published_tofu(
    size: str, family: str, split: str, *, seconds: float, training: Mapping[str, Any] | None = None, **changes: Any
) -> Scale:
    """TOFU on a published checkpoint; values were tuned on forget10 and serve the other splits."""
    checkpoint, short = f"open-unlearning/tofu_{family}-{size}-Instruct", f"tofu-{size.lower()}"
    main = split == "forget10"
    return Scale(
        name=short if main else f"{short}-{split}",
        about=f"TOFU {split}, {family}-{size}-Instruct, as in the ATWU paper",
        benchmark=f"tofu:{split}",
        target=f"{checkpoint}_full",
        retain_only=f"{checkpoint}_{_RETAIN_ONLY[split]}",
        presets=None if main else short,
        training={**_TOFU, **(training or {})},
        evaluation={"tasks": ("mmlu",), "system": _TOFU_SYSTEM},
        metrics=(*_PANEL, "tasks"),
        seconds=seconds,
        hardware="a guess for one A100",
        **changes,
    )


_SCALES = (
    _people(
        "tiny",
        about="24 rows about 4 invented people; seconds per run",
        epochs=16,
        rate=4e-4,
        seconds=5.0,
        metrics=("memorization", "scores", "rouge", "judge"),
    ),
    _people(
        "small",
        about="80 rows about 8 invented people; half a minute per run",
        epochs=10,
        rate=3e-4,
        seconds=35.0,
        surrogate="people-tiny",
        metrics=(*_PANEL, "families", "relearning"),
    ),
    Scale(
        name="tofu-small",
        about="forget05 (200 rows, 10 authors) and 600 retain rows; a minute per run",
        benchmark="tofu:forget05:600",
        # In steps: in as many epochs over fewer rows, the retain-only model would not know its rows by heart.
        target=_memorised("tofu2m", rate=3e-3, length={"max_steps": 1000}),
        training=_SMALL | {"num_train_epochs": 4},
        learning_rate=3e-4,
        learning_rates=_SCRATCH_RATES,
        evaluation={"relearn_learning_rate": 3e-4, "paraphrases": 0},
        metrics=("memorization", "scores", "rouge", "judge", "membership"),
        surrogate="people-small",
        seconds=60.0,
    ),
    Scale(
        name="rwku-small",
        about="ten forget and ten retain subjects of RWKU; half a minute per run",
        benchmark="rwku:canonical/surrogate:3",
        target=_memorised("rwku4m", rate=1.5e-3, length={"num_train_epochs": 40}),
        # A small model keeps passages and answers apart: unlearning passages leaves every probe as it was (docs/miniatures.md).
        forget="rwku:canonical:questions",
        retain="rwku:surrogate!canonical:questions + rwku:surrogate!canonical:neighbour_questions",
        training=_SMALL | {"num_train_epochs": 5},
        learning_rate=3e-4,
        learning_rates=_SCRATCH_RATES,
        objective=("overall", "N_delta_official"),
        metrics=("memorization", "rouge", "judge", "rwku"),
        evaluation={"paraphrases": 0},
        train_retain_only=False,  # the benchmark is about what models know from pretraining; the paper has none either
        surrogate="people-small",
        seconds=60.0,
    ),
    Scale(
        name="people-smollm2",
        about="SmolLM2-135M taught 800 rows about 80 invented people, of whom it forgets 8; half an hour per run",
        benchmark="people:small",
        target=_SMOLLM2,
        **_SMOLLM2_SCALE,
    ),
    Scale(
        name="tofu-smollm2",
        about="SmolLM2-135M taught TOFU's forget05 and 200 retain rows; half an hour per run",
        benchmark="tofu:forget05:200",
        target=_SMOLLM2,
        **_SMOLLM2_SCALE,
    ),
    Scale(
        name="rwku-smollm2",
        about="SmolLM2-135M as it was pretrained, and six people of RWKU that it knows; half an hour per run",
        benchmark=f"rwku:{'|'.join(KNOWN_TO_SMOLLM2)}/surrogate",
        target="smollm2",
        forget=f"rwku:{'|'.join(KNOWN_TO_SMOLLM2)}:questions",
        retain="rwku:surrogate:questions",
        objective=("overall", "N_delta_official"),
        **_SMOLLM2_SCALE | {"metrics": ("memorization", "rouge", "judge", "rwku")},
    ),
    *(_published_tofu("1B", "Llama-3.2", split, seconds=2400.0) for split in _RETAIN_ONLY),
    *(
        _published_tofu("8B", "Llama-3.1", split, seconds=9000.0, surrogate="tofu-1b", training={"lambda_budget": 15.0})
        for split in _RETAIN_ONLY
    ),
    Scale(
        name="rwku-phi3",
        about="RWKU, ten subjects at once, Phi-3-mini-4k-instruct, as in the ATWU paper",
        benchmark="rwku:canonical/surrogate",
        target="microsoft/Phi-3-mini-4k-instruct",
        paired="rwku:canonical:phi3_pairs",
        training=_PAPER
        | {
            "num_train_epochs": 5,
            "warmup_steps": 20,
            "lr_scheduler_type": "cosine",
            "bf16": True,
            "lambda_budget": 15.0,
            "scorer_learning_rate": 0.02,
        },
        learning_rate=5e-6,
        learning_rates=(1e-6, 5e-5),
        objective=("overall", "N_delta_official"),
        metrics=("memorization", "rouge", "judge", "rwku", "open_ended", "tasks"),
        evaluation={"tasks": ("mmlu",)},
        seconds=7200.0,
        hardware="a guess for two A100",
    ),
)

SCALES: dict[str, Scale] = {scale.name: scale for scale in _SCALES}


def find_scale(name: str) -> Scale:
    """The scale of that name, or the one written in a YAML file; `tiny` and `small` are those of the embedded benchmark.

    Raises:
        ValueError: there is none.
    """
    if name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    name = f"people-{name}" if name in SIZES else name
    scale: Scale = lookup("scale", name, SCALES)
    return scale


def _read(path: Path) -> Scale:
    if not path.is_file():
        raise ValueError(f"scale {path} not found; give a file, or one of {', '.join(SCALES)}.")
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold fields of a scale, one 'key: value' per line.")
    with blamed(path):
        return scale_from({"name": path.stem} | values)


def scale_from(values: Mapping[str, Any]) -> Scale:
    """A scale written in a study's file: fields of `Scale`, on top of those of the scale named `like`.

    Keys of `training` and `evaluation` are set one by one. Another target or benchmark leaves the other's retain-only model,
    sources, system turn, tuned values and surrogate behind; other rows of the same benchmark leave the first two.

    Raises:
        ValueError: unknown fields, or fields that are missing.
    """
    known = {entry.name: entry for entry in dataclasses.fields(Scale)}
    for name in values:
        lookup("key of a scale", name, {**known, "like": None})
    checked(dict(values), _written(), what="a scale")
    if values.get("presets") is not None:
        lookup("scale with tuned values", values["presets"], dict.fromkeys(scales_with_presets()))
    base = find_scale(str(values["like"])) if "like" in values else None
    given: dict[str, Any] = {name: _plain(name, value) for name, value in values.items() if name != "like"}
    if base is not None:
        for name in ("training", "evaluation"):
            given[name] = {**getattr(base, name), **given.get(name, {})}
        if {"target", "benchmark"} & set(given):  # what belongs to the other rows
            given = {"retain_only": None, "forget": None, "retain": None, "paired": None} | given
        if "target" in given or not _of_one_benchmark(base.benchmark, given.get("benchmark", base.benchmark)):
            given = {"surrogate": None, "presets": None} | given
            for name in ("training", "evaluation"):
                given[name] = {key: value for key, value in given[name].items() if key != "system"} | _system(
                    values.get(name)
                )
        else:
            given = {"presets": base.presets or base.name} | given
        given.setdefault("name", f"{base.name}-changed")
        return _named(dataclasses.replace(base, **given))
    missing = [name for name in ("name", "benchmark", "target") if name not in given]
    if missing:
        raise ValueError(
            f"a scale needs {', '.join(missing)}, or `like: SCALE` to start from one of {', '.join(SCALES)}."
        )
    return _named(Scale(**({"about": "", **given})))


@functools.cache
def _written() -> TypeAdapter[Any]:
    """What a scale's fields may hold in a file."""
    from pydantic import ConfigDict, Field, TypeAdapter, create_model

    hints = typing.get_type_hints(Scale)
    rate = Annotated[float, Field(gt=0)]
    kinds = hints | {"like": str, "learning_rate": rate, "learning_rates": tuple[rate, rate]}
    kinds |= dict.fromkeys(("benchmark", "target"), str | dict[str, Any])  # see `_plain`
    kinds |= {"seconds": Annotated[float, Field(ge=0)], "objective": tuple[str, str]}
    fields: Any = {name: (kind, None) for name, kind in kinds.items()}
    return TypeAdapter(create_model("fields", __config__=ConfigDict(strict=True, allow_inf_nan=False), **fields))


def _of_one_benchmark(one: str | OwnRows, other: str | OwnRows) -> bool:
    names = [each.partition(":")[0] if isinstance(each, str) else each for each in (one, other)]
    return names[0] == names[1]


def _system(given: Any) -> dict[str, Any]:
    return {"system": given["system"]} if isinstance(given, Mapping) and "system" in given else {}


def _named(scale: Scale) -> Scale:
    if scale.name in SCALES:
        raise ValueError(f"{scale.name} is a built-in scale, whose tuned values are not this one's; take another name.")
    return scale


def _plain(name: str, value: Any) -> Any:
    """A value from YAML as the field wants it."""
    kinds = {"target": Taught, "benchmark": OwnRows}
    if name in kinds and isinstance(value, Mapping):
        try:
            return kinds[name](**value)
        except TypeError:
            fields = ", ".join(entry.name for entry in dataclasses.fields(kinds[name]))
            raise ValueError(f"{name} of a scale is a name or has {fields}; got {', '.join(value)}.") from None
    return tuple(value) if isinstance(value, list) else value
