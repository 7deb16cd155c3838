"""Auxiliary models in the cache: found if intact, trained again if damaged."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from atwu import UnlearnConfig
from atwu.methods.recipe import recipe
from atwu.modeling.load import load_tokenizer
from atwu.training.load_to_train import ModelSource
from atwu.training.precompute import digests_of_inputs
from atwu.training.training_rows import unlearning_rows
from atwu.training.unlearn_run import auxiliary_models
from tests.damage import damage, disk


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atwu.training.unlearn_run.AUXILIARY_EPOCHS", 1)


def made_in(cache: Path, model_folder: Path, data_files: tuple[Path, Path], said: list[str], **options: object) -> Path:
    config = UnlearnConfig(
        method="su_llm",
        auxiliary_retain=str(model_folder),
        cache_dir=str(cache),
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    forget, retain = map(str, data_files)
    rows = unlearning_rows(forget, retain, config, tokenizer=load_tokenizer(str(model_folder)))
    made = auxiliary_models(
        ModelSource(model=str(model_folder)), config, config.recipe().auxiliary, rows.sets, say=said.append
    )
    return Path(made["auxiliary_forget"])


def test_a_damaged_auxiliary_model_gives_a_warning_and_is_trained_again(model_folder, data_files, tmp_path, caplog):
    said: list[str] = []

    def folder() -> Path:
        return made_in(tmp_path, model_folder, data_files, said)

    weights = folder() / "model.safetensors"
    whole = weights.read_bytes()
    assert folder() == weights.parent
    assert str(weights.parent) in said[-1]
    for name, how in (("model.safetensors", "flipped"), ("run.json", "missing")):
        damage(weights.parent / name, how)
        assert folder() == weights.parent
        assert weights.read_bytes() == whole
    warned = [message for message in caplog.messages if message.startswith("warning: ")]
    assert len(warned) == 2
    assert f"{weights.parent} " in warned[0]
    assert "model.safetensors" in warned[0]
    assert f"{weights.parent} " in warned[1]
    assert "run.json" in warned[1]


def test_auxiliary_models_are_trained_with_the_adapters_of_the_run_or_rejected(model_folder, data_files, tmp_path):
    folder = made_in(tmp_path, model_folder, data_files, [], lora_r=2, lora_targets="q_proj", learning_rate=1e-2)
    before, after = (load_file(place / "model.safetensors") for place in (model_folder, folder))
    assert {name.rpartition(".self_attn.")[2] for name in before if not torch.equal(before[name], after[name])} == {
        "q_proj.weight"
    }
    with pytest.raises(ValueError, match=r"quantize='4bit'.*auxiliary_forget"):
        made_in(tmp_path, model_folder, data_files, [], lora_r=2, quantize="4bit")


def test_auxiliary_models_are_identified_by_weights_or_by_name_and_commit(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    def digest(name: str) -> str:
        found = digests_of_inputs(recipe("su_llm", auxiliary_forget=name, auxiliary_retain=str(model_folder)))
        return found["auxiliary_forget"]

    published = tmp_path / "models--owner--mask"
    for commit in ("a" * 40, "b" * 40):
        shutil.copytree(model_folder, published / "snapshots" / commit)
        (published / "refs").mkdir(exist_ok=True)
        (published / "refs" / "main").write_text(commit)
        assert digest("owner/mask") == f"owner/mask@{commit}"
    copied = shutil.copytree(model_folder, tmp_path / "copied")
    assert digest(str(copied)) == digest(str(model_folder))
    (copied / "model.safetensors").write_bytes(b"other")
    assert digest(str(copied)) != digest(str(model_folder))


def test_with_a_read_only_cache_the_auxiliary_model_is_trained_for_this_process(
    model_folder, data_files, tmp_path, caplog
):
    with disk(tmp_path / "cache", "1m") as cache:
        subprocess.run(["mount", "-o", "remount,ro", cache], check=True)
        folder = made_in(cache, model_folder, data_files, [])
    assert (folder / "model.safetensors").is_file()
    assert re.search(rf"^warning: .*{cache} .*Read-only file system", caplog.messages[0])
    shutil.rmtree(folder)
