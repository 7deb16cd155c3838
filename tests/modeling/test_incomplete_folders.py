"""Model folders that a download or a clone left incomplete are refused in one line that says what to do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from atwu.modeling.open_model import ModelLoadArgs, open_model
from tests.micro_models import write_micro

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234\n"


def _cut(folder: Path) -> None:
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)


def _without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def _in_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _under_way(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.safetensors.incomplete")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: (folder / "model.safetensors").write_text(POINTER),
            "is a pointer of Git LFS.*git lfs pull",
        ),
        (lambda folder: (folder / "tokenizer.json").write_text(POINTER), "tokenizer.json is a pointer of Git LFS"),
        (_cut, "model.safetensors cannot be loaded: .*Restore or correct the file"),
        (_without_tokenizer, "tokenizer.json cannot be loaded: there is no such file"),
        (_in_pickle, "no .safetensors weights; pytorch_model.bin is not loaded, since such files can run code"),
        (_under_way, "no .safetensors weights; copy or download the model again"),
    ],
    ids=["weights not pulled", "tokenizer not pulled", "cut", "no tokenizer", "pickle", "under way"],
)
def test_an_incomplete_folder_is_refused_in_one_line(
    tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    folder = write_micro(tmp_path / "model")
    change(folder)
    with pytest.raises((ValueError, OSError), match=message) as error:
        open_model(str(folder), ModelLoadArgs(), device="cpu")
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def test_an_adapter_without_its_base_model_is_refused_with_the_option_that_names_it(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    shutil.copy(write_micro(tmp_path / "model") / "model.safetensors", adapter / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "base_model_name_or_path": str(tmp_path / "gone"), "r": 4, "lora_alpha": 8}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(FileNotFoundError, match=r"base model of adapter .*gone.* not found.*--base") as error:
        open_model(str(adapter), ModelLoadArgs(), device="cpu")
    assert "\n" not in str(error.value)
