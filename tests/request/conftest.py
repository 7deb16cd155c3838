"""A small model that memorized the built-in people, and the command that unlearns."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import run_command


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of the commands; their cache is their own."""
    cache = str(tmp_path_factory.mktemp("cache"))
    return os.environ | {"ATWU_CACHE": cache, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory, trained_models: Callable[[Path], Path]) -> Path:
    """The model."""
    (folder,) = trained_models(tmp_path_factory.mktemp("request") / "models").glob("**/target")
    return folder


@pytest.fixture(scope="session")
def unlearn(target: Path, environment: dict[str, str]) -> Callable[..., str]:
    """Return a function that runs `atwu unlearn` on the model and returns its output."""

    def run(output: Path, *more: object, code: int = 0) -> str:
        done = run_command(["unlearn", "--model", target, "--output", output, *more], env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run
