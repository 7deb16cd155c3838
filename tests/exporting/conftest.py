"""Rows, a base model and two runs on it, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from atwu.benchmarks.people_rows import people
from atwu.data.row_parsing import write_rows
from atwu.evaluation.facts.askings import own_askings
from atwu.modeling.scratch import ScratchShape, scratch_model, train_tokenizer
from atwu.request import measurement
from atwu.training.config import UnlearnConfig
from atwu.training.unlearn_run import ModelSource, run_unlearn

SETTINGS = {
    "max_steps": 3,
    "learning_rate": 3e-3,
    "per_device_train_batch_size": 4,
    "use_cpu": True,
    "disable_tqdm": True,
    "save_strategy": "no",
    "logging_steps": 1,
    "method": "grad_diff",
}


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of their own, and few measurements: what is exported matters here, not how well it is measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATWU_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(measurement, "fact_askings", lambda rows, neighbours=(), **_: own_askings(rows))
        patch.setattr(measurement, "general_questions", lambda kind: ("Why is the sky blue?",))
        patch.setattr(measurement, "common_questions", lambda kind: ())
        yield


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, small = tmp_path_factory.mktemp("rows"), people("tiny")
    for name, some in (("forget", small.forget), ("retain", small.retain), ("holdout", small.holdout)):
        write_rows(folder / f"{name}.jsonl", some[:4])
    return folder


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "base"
    tokenizer = train_tokenizer((f"{row.question} {row.answer}" for row in people("tiny").full), vocab_size=400)
    shape = ScratchShape(vocab_size=len(tokenizer), hidden_size=64, layers=2, heads=2, intermediate_size=128)
    scratch_model(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def unlearned(base: Path, rows: Path, output: Path, **more: object) -> Path:
    sets = {name: str(rows / f"{name}.jsonl") for name in ("forget", "retain")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATWU_CACHE", str(output.with_name("cache")))
        run_unlearn(ModelSource(model=str(base)), UnlearnConfig(**SETTINGS, **more), output=output, **sets)
    return output


@pytest.fixture(scope="session")
def run(base: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on all weights."""
    return unlearned(base, rows, tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture(scope="session")
def adapters(base: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that left adapters."""
    return unlearned(base, rows, tmp_path_factory.mktemp("runs") / "lora", lora_r=4, save_adapter=True)
