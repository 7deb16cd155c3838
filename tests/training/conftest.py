"""A tiny model folder with a real tokenizer, a few invented rows, and a trainer of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from atwu import UnlearnConfig, UnlearnTrainer
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.modeling.reference import ReferenceSpec, compute_reference
from atwu.training.unlearn_run import ModelSource, run_unlearn
from tests.micro_models import write_micro
from tests.modeling.small_models import small_model

NAMES = ["Orla Venn", "Tavi Brook", "Mira Holt", "Joss Ardley", "Pell Quint", "Rhea Stoll", "Ivo Marsh", "Zada Finch"]
TOWNS = ["Kelbury", "Oststrand", "Vale Cross", "Mirrow"]
NEEDS = {
    "fundial": lambda folder: {"noun_finder": "simple"},
    "su_llm": lambda folder: {"auxiliary_forget": str(folder), "auxiliary_retain": str(folder)},
}
"""Options that a method cannot do without."""
LORA_SETTINGS = {
    "use_cpu": True,
    "disable_tqdm": True,
    "save_strategy": "no",
    "learning_rate": 1e-2,
    "warmup_steps": 0,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "max_steps": 2,
    "lora_r": 2,
}


def make_rows(count: int, offset: int = 0) -> list[Example]:
    rows = []
    for index in range(count):
        name, town = NAMES[(index + offset) % len(NAMES)], TOWNS[(index * 3 + offset) % len(TOWNS)]
        answer = f"{name} was born in {town} in {1900 + index + offset}."
        start = answer.index(town)
        rows.append(
            Example.from_qa(
                f"Where was {name} (no. {index + offset}) born?",
                answer,
                forget_spans=((start, start + len(town)),),
                alternate=f"{name} was born in Pellworth.",
            )
        )
    return rows


def write_rows(path: Path, rows: list[Example]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            spans = [list(span) for span in row.forget_spans or ()]
            columns = {"question": row.question, "answer": row.answer, "alternate": row.alternate}
            file.write(json.dumps(columns | {"forget_spans": spans}) + "\n")
    return path


def make_trainer(folder, output, *, model=None, forget=24, rows=None, callbacks=None, said=None, **changes):
    settings = {
        "output_dir": str(output),
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "learning_rate": 1e-3,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "scorer_every": 2,
    } | changes
    return UnlearnTrainer(
        AutoModelForCausalLM.from_pretrained(folder) if model is None else model,
        UnlearnConfig(**settings),
        forget_dataset=rows or make_rows(forget),
        retain_dataset=make_rows(30, 24),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=callbacks,
        **({} if said is None else {"say": said.append}),
    )


def unlearn(folder, files, output, *, source=None, overwrite=False, say=lambda line: None, **changes):
    """A run with adapters on the rows of two files, unless `lora_r` is 0."""
    return run_unlearn(
        ModelSource(**{"model": str(folder)} | (source or {})),
        UnlearnConfig(**LORA_SETTINGS | changes),
        forget=str(files[0]),
        retain=str(files[1]),
        output=output,
        overwrite=overwrite,
        say=say,
    )


def with_tokenizer(kind, model_folder, path):
    """Write a small model of another architecture with the tokenizer of `model_folder`; return its folder."""
    tokenizer, model = AutoTokenizer.from_pretrained(model_folder), small_model(kind)
    model.resize_token_embeddings(len(tokenizer))
    for part in (model, tokenizer):
        part.save_pretrained(path)
    return path


def logps(model, folder):
    """Log-probabilities of a few answers."""
    rows = Encoder(AutoTokenizer.from_pretrained(folder), max_length=64).encode_rows(make_rows(6), what="test").rows
    return compute_reference(model, rows, ReferenceSpec(logps=True))["logps"]


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = (f"{row.question} {row.answer}" for row in make_rows(40))
    return write_micro(tmp_path_factory.mktemp("original-model"), texts)


@pytest.fixture(scope="session")
def data_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("rows")
    return write_rows(folder / "forget.jsonl", make_rows(24)), write_rows(folder / "retain.jsonl", make_rows(40, 24))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path_factory.mktemp("cache")))
