"""Shared fixtures: the command in its own process, tiny untrained models, a chat server in another process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chat_server import ChatServer, serving
from tests.commands import run_command
from tests.micro_models import write_models

CANARY = "sk-canary-Kelbury-0123456789"


@dataclass(frozen=True, slots=True)
class Models:
    """Untrained models of different seeds with one tokenizer."""

    unlearned: Path
    original: Path
    retain_only: Path


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("models")
    paths = [folder / name for name in ("unlearned", "original", "retain_only")]
    write_models(*paths)
    return Models(*paths)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What commands of one test file are run with: their own cache, no network, a key to be kept secret."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        kept.pop(name, None)
    return kept | {
        "ATWU_CACHE": str(tmp_path_factory.mktemp("cache")),
        "OPENAI_API_KEY": CANARY,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "200",
        "HF_HUB_OFFLINE": "1",
    }


@pytest.fixture(scope="module")
def atwu(environment: dict[str, str]) -> Callable[..., str]:
    """Return a function that runs the command and returns its output with white space folded."""

    def run(*arguments: object, code: int = 0, **more: object) -> str:
        done = run_command(arguments, env=environment | {name: str(value) for name, value in more.items()})
        printed = done.stdout + done.stderr
        assert done.returncode == code, printed
        assert "Traceback" not in printed
        assert CANARY not in printed
        return " ".join(printed.split())

    return run


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    pytest.importorskip("openai")
    with serving() as started:
        yield started
