"""Shared fixtures: a tiny real model and handmade token batches.

Slow imports are made where they are used, because the process that only distributes files to workers needs none of them.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if "PYTEST_XDIST_WORKER" in os.environ:  # one thread a worker, also in the processes that tests start
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import LlamaForCausalLM

settings.register_profile("untimed", deadline=None)  # no test depends on how fast the machine is
settings.load_profile("untimed")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background jobs; interrupts are tested all the same
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Workers begin to collect at different places, so that each finds compiled what another has compiled before."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("PYTEST_XDIST_WORKER_COUNT")
    if worker and workers and config.args == ["tests"]:
        places = sorted(
            str(path) for path in (config.rootpath / "tests").glob("[!_]*") if path.is_dir() or "test_" in path.name
        )
        first = len(places) * int(worker.removeprefix("gw")) // int(workers)
        config.args = places[first:] + places[:first]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files: those with slow tests first, then from tests/training to tests/benchmarks, so that short ones end the run."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path in slow, item.path), reverse=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("posix") and not hasattr(os, "fork"):
        pytest.skip("needs forks, signals or sockets of POSIX")


def pytest_collection_finish() -> None:
    """Exclude imported objects from garbage collection, which a trainer requests after each run."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def workers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all workers of a run share, for what is made once."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return folder


@pytest.fixture(scope="session")
def trained_models(workers_folder: Path) -> Callable[[Path], Path]:
    """Puts the models of `people-tiny`, trained once for all workers, into a cache."""
    from atwu.experiments.benchmark_settings import find_setting
    from atwu.experiments.study_models import prepare_models

    shared = workers_folder / "trained"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATWU_CACHE", str(shared))
        prepare_models(find_setting("people-tiny"))
    return lambda cache: Path(shutil.copytree(shared, cache))


@pytest.fixture(scope="session")
def smollm2() -> str:
    """Folder or Hub name of SmolLM2-135M-Instruct, in the user's cache; skips where it is not reached."""
    from atwu.modeling.named_models import model_source

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ATWU_CACHE", raising=False)
        try:
            return model_source("smollm2")
        except OSError as error:
            pytest.skip(str(error))


@pytest.fixture
def tiny_llama() -> Callable[..., LlamaForCausalLM]:
    """Builds equal tiny models: a few thousand parameters, grouped-query attention, untied head."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def build(seed: int = 0, **changes: object) -> LlamaForCausalLM:
        settings = {
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
        } | changes
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**settings))

    return build


@pytest.fixture
def batch() -> Callable[..., dict[str, Tensor]]:
    """Builds random token batches with prompts, unequal lengths and padding on a chosen side."""
    import torch

    def build(
        rows: int = 4, length: int = 12, seed: int = 0, vocab: int = 64, left_padded: bool = False
    ) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, vocab, (rows, length), generator=generator)
        mask = torch.ones(rows, length, dtype=torch.long)
        labels = ids.clone()
        token_labels = (torch.rand(rows, length, generator=generator) < 0.4).float()
        for row in range(rows):
            size = int(torch.randint(6, length + 1, (1,), generator=generator))
            prompt = int(torch.randint(1, size - 2, (1,), generator=generator))
            start = length - size if left_padded else 0
            mask[row] = 0
            mask[row, start : start + size] = 1
            labels[row, : start + prompt] = -100
        labels[mask == 0] = -100
        ids[mask == 0] = 0
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "labels": labels,
            "token_labels": token_labels * (labels != -100),
        }

    return build


@pytest.fixture
def plain_logps() -> Callable[..., tuple[Tensor, Tensor]]:
    """An independent, plain computation: full logits, full log-softmax, explicit loops over rows and positions."""
    import torch

    def compute(model: torch.nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        mask = batch["attention_mask"]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = model(input_ids=batch["input_ids"], attention_mask=mask, position_ids=positions).logits
        everything = torch.log_softmax(logits.double(), dim=-1)
        rows, length = batch["input_ids"].shape
        counted = torch.zeros(rows, length - 1, dtype=torch.bool)
        values = []
        for row in range(rows):
            for column in range(1, length):
                label = int(batch["labels"][row, column])
                if label != -100 and mask[row, column] and mask[row, column - 1]:
                    counted[row, column - 1] = True
                    values.append(everything[row, column - 1, label])
        return torch.stack(values), counted

    return compute
