"""`trainer.save_model` writes the folder of the command: weights, record, log and card."""

from __future__ import annotations

import json

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from atwu import FinetuneConfig, FinetuneTrainer, UnlearnConfig, UnlearnTrainer
from atwu.modeling.load import load_model, model_fingerprint
from atwu.training.unlearn_run import ModelSource, run_unlearn
from tests.training.conftest import make_rows

SETTINGS = {"method": "atwu", "max_steps": 3, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
DIFFERS = {"started", "train_seconds", "peak_memory_bytes", "config"}
"""Keys of a record that differ between runs; settings differ in `output_dir`."""


def files_of(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "lora",
    [
        pytest.param({"lora_r": 2}, id="lora"),
        pytest.param({}, id="all", marks=pytest.mark.night),
        pytest.param({"lora_r": 2, "save_adapter": True}, id="kept", marks=pytest.mark.night),
    ],
)
def test_python_and_the_command_write_the_same_files(lora, model_folder, data_files, tmp_path):
    forget, retain = map(str, data_files)
    run_unlearn(
        ModelSource(model=str(model_folder)),
        UnlearnConfig(**SETTINGS | lora),
        forget=forget,
        retain=retain,
        output=tmp_path / "command",
    )
    trainer = UnlearnTrainer(
        str(model_folder),
        UnlearnConfig(output_dir=str(tmp_path / "work"), **SETTINGS | lora),
        forget_dataset=forget,
        retain_dataset=retain,
    )
    trainer.train()
    before = model_fingerprint(trainer.model)
    trainer.save_model(str(tmp_path / "python"))
    assert model_fingerprint(trainer.model) == before
    assert files_of(tmp_path / "python") == files_of(tmp_path / "command")
    found, expected = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("python", "command"))
    assert {key: found[key] for key in found.keys() - DIFFERS} == {
        key: expected[key] for key in expected.keys() - DIFFERS
    }
    assert {**found["config"], "output_dir": None} == {**expected["config"], "output_dir": None}
    logs = [
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("python", "command")
    ]
    assert [line.keys() for line in logs[0]] == [line.keys() for line in logs[1]]
    assert logs[0][0] == logs[1][0]
    assert "# Unlearned with atwu" in (tmp_path / "python" / "README.md").read_text()
    if not lora.get("save_adapter"):
        assert model_fingerprint(load_model(str(tmp_path / "python"))) == found["result_fingerprint"]


def test_a_model_and_rows_in_memory_are_recorded_as_such(model_folder, tmp_path):
    trainer = UnlearnTrainer(
        AutoModelForCausalLM.from_pretrained(model_folder),
        UnlearnConfig(output_dir=str(tmp_path / "out"), **SETTINGS),
        forget_dataset=make_rows(4),
        retain_dataset=make_rows(4, 24),
        processing_class=AutoTokenizer.from_pretrained(model_folder),
    )
    start = model_fingerprint(trainer.model)
    trainer.train()
    trainer.save_model()
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["original_model"]["model"] == str(model_folder)
    assert record["original_model"]["fingerprint"] == start
    assert record["data"]["forget"]["source"] is None
    assert record["data"]["forget"]["rows"] == 4
    assert "| forget | in memory | 4 |" in (tmp_path / "out" / "README.md").read_text()


def test_a_model_saved_without_training_records_zero_steps(model_folder, tmp_path):
    trainer = FinetuneTrainer(
        AutoModelForCausalLM.from_pretrained(model_folder),
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True, disable_tqdm=True),
        train_dataset=make_rows(4),
        processing_class=AutoTokenizer.from_pretrained(model_folder),
    )
    trainer.save_model(str(tmp_path / "saved"))
    record = json.loads((tmp_path / "saved" / "run.json").read_text())
    assert (record["command"], record["steps"], record["started"]) == ("finetune", 0, None)
    assert record["result_fingerprint"] == record["original_model"]["fingerprint"]


def test_the_pushed_folder_is_complete_and_has_no_local_paths(model_folder, tmp_path, monkeypatch):
    pushed = {}

    class Hub:
        def __init__(self, token: str | None) -> None:
            pushed["token"] = token

        def create_repo(self, name, **_):
            pushed["name"] = name
            return type("Repo", (), {"repo_id": name})

        def upload_folder(self, *, folder_path, ignore_patterns, **_):
            pushed["files"] = files_of(folder_path)
            pushed["ignored"] = ignore_patterns

        def upload_file(self, *, path_or_fileobj, path_in_repo, **_):
            pushed[path_in_repo] = path_or_fileobj.decode()

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    trainer = UnlearnTrainer(
        str(model_folder),
        UnlearnConfig(output_dir=str(tmp_path / "mine"), hub_token="hf_secret", **SETTINGS),
        forget_dataset=make_rows(4),
        retain_dataset=make_rows(4, 24),
    )
    trainer.train()
    trainer.push_to_hub()
    assert (pushed["name"], pushed["token"]) == ("mine", "hf_secret")
    assert {"README.md", "model.safetensors", "log.jsonl"} <= pushed["files"]
    assert "run.json" in pushed["ignored"]
    assert str(tmp_path) not in pushed["run.json"]
    assert "hf_secret" not in pushed["run.json"]
    with pytest.raises(TypeError, match="language"):
        trainer.push_to_hub(language="en")
