"""The auxiliary models in the cache: found when whole, and trained again when damaged."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from atwu import UnlearnConfig
from atwu.modeling.load import load_tokenizer
from atwu.training.auxiliary import auxiliary_models
from atwu.training.model import ModelSource
from atwu.training.rows import unlearning_rows
from tests.damage import damage, disk


def made_in(cache: Path, model_folder: Path, data_files: tuple[Path, Path], said: list[str]) -> Path:
    config = UnlearnConfig(
        method="su_llm",
        auxiliary_retain=str(model_folder),
        cache_dir=str(cache),
        use_cpu=True,
        disable_tqdm=True,
    )
    forget, retain = map(str, data_files)
    rows = unlearning_rows(forget, retain, config, tokenizer=load_tokenizer(str(model_folder)))
    made = auxiliary_models(ModelSource(model=str(model_folder)), config, rows.sets, say=said.append)
    return Path(made["auxiliary_forget"])


def test_a_damaged_auxiliary_model_is_named_and_trained_again(model_folder, data_files, tmp_path, caplog):
    said: list[str] = []

    def folder() -> Path:
        return made_in(tmp_path, model_folder, data_files, said)

    weights = folder() / "model.safetensors"
    whole = weights.read_bytes()
    assert folder() == weights.parent
    assert said[-1] == f"auxiliary model of the forget set: found in {weights.parent}"
    for name, how in (("model.safetensors", "flipped"), ("run.json", "missing")):
        damage(weights.parent / name, how)
        assert folder() == weights.parent
        assert weights.read_bytes() == whole
    warned = [message for message in caplog.messages if message.startswith("warning: ")]
    assert warned == [
        f"warning: {weights.parent} is damaged (model.safetensors is not what was written); it is made again",
        f"warning: {weights.parent} is damaged (run.json is missing); it is made again",
    ]


def test_where_the_cache_is_read_only_it_is_trained_for_this_process(model_folder, data_files, tmp_path, caplog):
    with disk(tmp_path / "cache", "1m") as cache:
        subprocess.run(["mount", "-o", "remount,ro", cache], check=True)
        folder = made_in(cache, model_folder, data_files, [])
    assert (folder / "model.safetensors").is_file()
    assert caplog.messages[0].startswith(f"warning: {cache} cannot be written to (Read-only file system)")
    shutil.rmtree(folder)
