"""Runs that train LoRA adapters: output files, base models, resuming, and rejected combinations."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import shutil
import sys

import pytest
import torch

pytest.importorskip("peft")

from transformers import AutoModelForCausalLM

from atwu import TokenScorer, UnlearnConfig
from atwu.modeling.adapters import adapters_of
from atwu.modeling.load import load_model, load_tokenizer, model_fingerprint
from atwu.training.config import FinetuneConfig
from atwu.training.load_to_train import check_training, space_needed, with_adapters
from atwu.training.saving_trainer import load_base_with_adapter
from atwu.training.token_trainer import TokenTrainer
from atwu.training.unlearn_run import ModelSource, run_finetune
from tests.training.conftest import LORA_SETTINGS, logps, unlearn


@pytest.fixture(scope="module")
def results(model_folder, data_files, tmp_path_factory):
    """The same run, merged and as adapters."""
    folder = tmp_path_factory.mktemp("results")
    said = []
    for name, save_adapter in (("merged", False), ("adapter", True)):
        unlearn(
            model_folder,
            data_files,
            folder / name,
            method="atwu",
            scorer_every=1,
            save_adapter=save_adapter,
            say=said.append,
        )
    assert any(re.search("rank 2: 2,176 ", line) for line in said)  # 2 layers x 2 x (4 x (32 + 32) + 3 x (32 + 64))
    return folder


def test_merged_and_adapter_results_are_the_same_model(results, model_folder):
    plain = AutoModelForCausalLM.from_pretrained(results / "merged")
    beside = load_model(str(results / "adapter"), merge=False)
    assert adapters_of(beside) is not None
    torch.testing.assert_close(logps(plain, model_folder), logps(beside, model_folder), atol=1e-4, rtol=1e-4)
    assert (logps(plain, model_folder) - logps(load_model(str(model_folder)), model_folder)).abs().max() > 1e-2
    records = [json.loads((results / name / "run.json").read_text()) for name in ("merged", "adapter")]
    assert [record["result_fingerprint"] for record in records] == [model_fingerprint(m) for m in (plain, beside)]
    base = model_fingerprint(load_model(str(model_folder)))
    for record, kind in zip(records, ("merged", "adapter"), strict=True):
        assert record["original_model"]["fingerprint"] == base
        assert record["result"] == {
            "kind": kind,
            "lora": {"r": 2, "alpha": 4.0, "targets": None, "dropout": 0.0, "layers": None},
            "base_model": str(model_folder),
            "base_fingerprint": base,
        }
        assert "peft" in record["versions"]
    for name in ("merged", "adapter"):
        assert TokenScorer.from_pretrained(results / name).linear.weight.abs().max() > 0


def test_result_folders_are_complete_and_cards_name_no_machine(results, model_folder):
    shared = {"README.md", "log.jsonl", "run.json", "scorer.safetensors", "scorer_config.json", "tokenizer.json"}
    names = {name: {path.name for path in (results / name).iterdir()} for name in ("merged", "adapter")}
    assert shared | {"config.json", "model.safetensors"} <= names["merged"]
    assert shared | {"adapter_config.json", "adapter_model.safetensors"} <= names["adapter"]
    assert not names["merged"] & {"adapter_config.json", "adapter_model.safetensors"}
    assert not names["adapter"] & {"model.safetensors", "training_args.bin"}
    assert not list(results.glob("*.incomplete"))
    cards = {name: (results / name / "README.md").read_text() for name in names}
    assert "merged into the weights" in cards["merged"]
    assert "library_name: peft" in cards["adapter"]
    assert f"needs `{model_folder.name}`" in cards["adapter"]
    for card in cards.values():
        assert card.count("# Unlearned with atwu") == 1
        assert "LoRA adapters of rank 2 (alpha 4) on all linear layers of the decoder" in card
        assert not re.search(r"(?<![\w`])/\w+/", card)
    assert str(model_folder.parent) not in (results / "merged" / "config.json").read_text()


def test_sharded_results_are_merged_from_disk(results, model_folder, tmp_path):
    shutil.copytree(results / "adapter", tmp_path / "gathered")
    config, source = UnlearnConfig(**LORA_SETTINGS), ModelSource(model=str(model_folder))
    tokenizer = load_tokenizer(str(model_folder))
    model = load_base_with_adapter(source, config, tmp_path / "gathered", tokenizer, merge=True)
    record = json.loads((results / "merged" / "run.json").read_text())
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "gathered")
    assert model_fingerprint(model) == model_fingerprint(saved) == record["result_fingerprint"]
    assert not list((tmp_path / "gathered").glob("adapter_*"))


class KilledError(Exception):
    """Stand-in for a kill."""


def test_a_killed_run_resumes_to_the_same_adapters(model_folder, data_files, tmp_path, monkeypatch):
    options = {
        "method": "atwu_npo",
        "reference": "adapters",
        "lora_dropout": 0.2,
        "scorer_every": 2,
        "max_steps": 4,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_adapter": True,
    }
    unlearn(model_folder, data_files, tmp_path / "whole", **options)
    original = TokenTrainer._save_checkpoint

    def dies(self, *rest):
        original(self, *rest)
        if self.state.global_step == 2:
            raise KilledError

    monkeypatch.setattr(TokenTrainer, "_save_checkpoint", dies)
    with contextlib.suppress(KilledError):
        unlearn(model_folder, data_files, tmp_path / "killed", **options)
    gc.collect()  # lets go of the work folder
    monkeypatch.undo()
    work = tmp_path / "killed.incomplete"
    names = {path.name for path in (work / "checkpoint-2").iterdir()}
    assert "adapter_model.safetensors" in names
    assert "model.safetensors" not in names
    with pytest.raises(FileExistsError, match=r"options\.lora_r"):
        unlearn(model_folder, data_files, tmp_path / "killed", **options | {"lora_r": 3})
    gc.collect()
    finished = unlearn(model_folder, data_files, tmp_path / "killed", **options)
    assert finished.resumed_from == 2
    for name in ("adapter_model.safetensors", "scorer.safetensors", "log.jsonl"):
        left, right = ((tmp_path / run / name) for run in ("whole", "killed"))
        if name == "log.jsonl":
            left, right = (
                [json.loads(line)["loss"] for line in file.read_text().splitlines() if '"loss"' in line]
                for file in (left, right)
            )
            assert left == right
        else:
            assert left.read_bytes() == right.read_bytes(), name


def test_adapters_on_an_adapter_folder_or_a_new_model_are_merged(results, model_folder, data_files, tmp_path):
    unlearn(results / "adapter", data_files, tmp_path / "twice", method="grad_diff", learning_rate=1e-30)
    twice = AutoModelForCausalLM.from_pretrained(tmp_path / "twice")
    assert model_fingerprint(twice) == model_fingerprint(load_model(str(results / "adapter")))
    with pytest.raises(ValueError, match=r"base model.*--save-adapter"):
        unlearn(results / "adapter", data_files, tmp_path / "other", save_adapter=True)
    config = FinetuneConfig(**LORA_SETTINGS)
    run_finetune(ModelSource(scratch="micro"), config, data=str(data_files[0]), output=tmp_path / "new")
    record = json.loads((tmp_path / "new" / "run.json").read_text())
    assert (record["result"]["kind"], record["result"]["base_model"]) == ("merged", "micro")
    assert record["result_fingerprint"] != record["original_model"]["fingerprint"]
    with pytest.raises(ValueError, match="base model"):
        run_finetune(
            ModelSource(scratch="micro"),
            FinetuneConfig(**LORA_SETTINGS | {"save_adapter": True}),
            data=str(data_files[0]),
            output=tmp_path / "other",
        )
    assert not (tmp_path / "other").exists()


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings", "ignore:Setting `save_embedding")
def test_adapters_on_tied_embeddings_are_saved_but_not_started_from(model_folder, data_files, tmp_path):
    changes = {"method": "grad_diff", "lora_targets": "lm_head"}
    with pytest.raises(ValueError, match=r"embeddings.*--save-adapter"):
        unlearn(model_folder, data_files, tmp_path / "out", **changes)
    assert not (tmp_path / "out.incomplete").exists()
    unlearn(model_folder, data_files, tmp_path / "out", save_adapter=True, **changes)
    assert adapters_of(load_model(str(tmp_path / "out"))) is not None
    with pytest.raises(ValueError, match=r"merged.*base model"):
        unlearn(tmp_path / "out", data_files, tmp_path / "again")


def test_base_of_a_moved_adapter_is_named(results, model_folder, data_files, tmp_path):
    folder = shutil.copytree(results / "adapter", tmp_path / "adapter")
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(tmp_path / "gone")}))
    (folder / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match="--base"):
        ModelSource(model=str(folder))
    unlearn(folder, data_files, tmp_path / "out", source={"base": str(model_folder)}, method="grad_diff")
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_weights_are_allowed_under_adapters(dtype, model_folder, data_files, tmp_path):
    said = []
    unlearn(model_folder, data_files, tmp_path / "out", method="npo", source={"dtype": dtype}, say=said.append)
    warnings = [line for line in said if line.startswith("warning")]
    assert [dtype in line for line in warnings][-1:] == [True]
    assert len(warnings) == (2 if dtype == "float16" else 1)
    weights = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict().values()
    assert {weight.dtype for weight in weights} == {getattr(torch, dtype)}
    with pytest.raises(ValueError, match="float16"):
        unlearn(model_folder, data_files, tmp_path / "other", source={"dtype": "float16"}, lora_r=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora_alpha": 4.0, "lora_r": 0}, "lora_alpha.*lora_r"),
        ({"lora_targets": "q_proj", "lora_r": 0}, "lora_targets.*lora_r"),
        ({"lora_dropout": 0.1, "lora_r": 0}, "lora_dropout.*lora_r"),
        ({"save_adapter": True, "lora_r": 0}, "save_adapter.*lora_r"),
        ({"quantize": "4bit", "lora_r": 0}, "quantize.*lora_r"),
        ({"reference": "adapters", "lora_r": 0}, "LoRA.*lora_r"),
        ({"lora_r": -1}, r"lora_r .*>= 0.* -1"),
        ({"lora_alpha": 0.0}, "alpha.*> 0"),
        ({"lora_dropout": 1.0}, "dropout.* 0 .*1"),
        ({"lora_targets": "q_proj,,"}, "q_proj,v_proj.*'q_proj,,'"),
        ({"lora_targets": "q_prok"}, "'q_prok'.*q_proj"),
        ({"method": "rmu", "lora_targets": "q_proj, down_proj"}, "q_proj.*lora_targets"),
        ({"quantize": "3bit"}, "quantize.*4bit.*8bit"),
        ({"quantize": "4bit"}, "CUDA"),
    ],
)
def test_impossible_combinations_are_rejected_before_weights_are_read(
    changes, message, model_folder, data_files, tmp_path, monkeypatch
):
    monkeypatch.setattr("atwu.training.load_to_train.load_model", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(ValueError, match=message):
        unlearn(model_folder, data_files, tmp_path / "out", **changes)
    assert not list(tmp_path.iterdir())


def test_missing_peft_is_reported_before_weights_are_read(model_folder, data_files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setattr("atwu.training.load_to_train.load_model", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(ImportError, match=r"pip install 'atwu\[lora\]'"):
        unlearn(model_folder, data_files, tmp_path / "out")


def test_quantized_results_are_adapters(model_folder, monkeypatch):
    monkeypatch.setattr("atwu.training.load_to_train.check_quantization", lambda quantize, loading: None)
    source = ModelSource(model=str(model_folder))
    settings = LORA_SETTINGS | {"quantize": "4bit", "use_cpu": False}
    with pytest.raises(ValueError, match=r"quantized.*--save-adapter"):
        check_training(source, UnlearnConfig(**settings))
    assert check_training(source, UnlearnConfig(**settings | {"save_adapter": True})) > 0
    with pytest.raises(ValueError, match="quantize"):
        check_training(ModelSource(scratch="micro"), FinetuneConfig(**settings))


def test_disk_space_is_that_of_the_adapters(model_folder):
    config = FinetuneConfig(**LORA_SETTINGS)
    size = check_training(ModelSource(scratch="micro"), config)
    model = with_adapters(load_model(str(model_folder)), config)
    assert size == 4 * sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    for strategy, save_adapter, needed in (
        ("no", False, 1000),
        ("no", True, 10),
        ("epoch", False, 1090),
        ("epoch", True, 100),
    ):
        config = FinetuneConfig(**LORA_SETTINGS | {"save_strategy": strategy, "save_adapter": save_adapter})
        assert space_needed(1000, config, 10) == needed
    config = FinetuneConfig(**LORA_SETTINGS | {"save_strategy": "epoch", "lora_r": 0})
    assert space_needed(1000, config, 0) == 10_000
    config.save_total_limit = 1
    assert space_needed(1000, config, 0) == 7000
