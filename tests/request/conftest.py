"""A small model that memorized some of the built-in people, and the command that unlearns."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from atwu._files import file_lock
from atwu.benchmarks.people_rows import people
from atwu.data.row_parsing import write_rows
from atwu.modeling.scratch import ScratchShape, scratch_model, train_tokenizer
from atwu.training.config import FinetuneConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.unlearn_run import run_finetune
from tests.commands import run_here
from tests.request.measurements import few_measurements


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of the commands; their cache is their own."""
    cache = str(tmp_path_factory.mktemp("cache"))
    return os.environ | {"ATWU_CACHE": cache, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the rows of the first person to forget, and rows to keep.

    The model knows one of the holdout rows, which sets limits that a tiny model reaches in few steps.
    """
    folder, small = tmp_path_factory.mktemp("rows"), people("tiny")
    write_rows(folder / "forget.jsonl", small.forget[:6])
    write_rows(folder / "retain.jsonl", small.retain[:16])
    unseen = [replace(row, subject=None) for row in (*small.holdout[:8], small.retain[0])]
    write_rows(folder / "holdout.jsonl", unseen)
    return folder


@pytest.fixture(scope="session")
def target(workers_folder: Path) -> Path:
    """The model, trained once for all workers; it knows the rows of all people to forget, and the rows to keep."""
    folder, small = workers_folder / "people", people("tiny")
    with file_lock(folder / "lock"):
        if not (folder / "target").exists():
            tokenizer = train_tokenizer((f"{row.question} {row.answer}" for row in small.full), vocab_size=600)
            scratch_model(ScratchShape(len(tokenizer), 96, 2, 2, 192)).save_pretrained(folder / "base")
            tokenizer.save_pretrained(folder / "base")
            write_rows(folder / "known.jsonl", [*small.forget, *small.retain[:16]])
            config = FinetuneConfig(
                num_train_epochs=36,
                learning_rate=3e-3,
                per_device_train_batch_size=8,
                use_cpu=True,
                disable_tqdm=True,
                save_strategy="no",
            )
            source = ModelSource(model=str(folder / "base"))
            run_finetune(source, config, data=str(folder / "known.jsonl"), output=folder / "target")
    return folder / "target"


@pytest.fixture(scope="session")
def unlearn(target: Path, environment: dict[str, str]) -> Callable[..., str]:
    """Return a function that runs `atwu unlearn` on the model with `few_measurements` and returns its output."""

    def run(output: Path, *more: object, code: int = 0) -> str:
        with few_measurements(), pytest.MonkeyPatch.context() as patch:
            patch.setenv("ATWU_CACHE", environment["ATWU_CACHE"])
            done = run_here("unlearn", "--model", target, "--output", output, *more)
        assert done.exit_code == code, f"{done.output}{done.exception}"
        return done.output

    return run
