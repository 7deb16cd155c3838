"""Checkpoints that do not fit their configuration are rejected by the names of the tensors, not filled at random."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.modeling.generate import set_end_ids
from atwu.modeling.load import load_model
from atwu.modeling.model_checks import state_tying
from atwu.modeling.open_model import ModelLoadArgs, open_model
from tests.micro_models import write_micro

Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=50,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def without(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: value for name, value in weights.items() if part not in name}


def renamed(weights: Weights) -> Weights:
    return {name.replace("lm_head", "head"): value for name, value in weights.items()}


def cut(weights: Weights) -> Weights:
    return weights | {"model.embed_tokens.weight": torch.zeros(40, 16)}


@pytest.mark.parametrize(
    ("change", "config", "said"),
    [
        (without("lm_head"), {}, r"1 missing \(lm_head\.weight\)"),
        (without("layers.0.self_attn.q_proj"), {}, r"layers\.0\.self_attn\.q_proj"),
        (renamed, {}, r"lm_head\.weight.*head\.weight"),
        (cut, {}, "shapes"),
        (dict, {"num_hidden_layers": 1}, r"9 in no layer.*layers\.1\..*num_hidden_layers"),
        (dict, {"num_hidden_layers": 3}, r"9 missing \(model\.layers\.2\."),
        (dict, {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, r"missing.*model_type"),
        (
            dict,
            {"model_type": "helium"},
            r"architectures names LlamaForCausalLM, but model_type 'helium' is .* HeliumFor",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_rejected(
    change: Callable[[Weights], Weights], config: Mapping[str, Any], said: str, whole: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    save_file(change(load_file(whole / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=f"(?s){folder}.*{said}"):
        load_model(str(folder))


def test_a_head_that_is_the_embedding_is_not_missing(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    weights = without("lm_head")(load_file(whole / "model.safetensors"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(settings))
    model = load_model(str(folder))
    assert torch.equal(model.get_output_embeddings().weight, weights["model.embed_tokens.weight"])


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.9, "top_p": 0.6},
        {"do_sample": False, "temperature": 0.6},
        {"length_penalty": 2.0, "early_stopping": True},
        {"top_k": 1, "max_length": 4096, "pad_token_id": -1},
    ],
)
def test_generation_settings_that_transformers_refuses_to_save_are_saved_without_those_of_no_effect(
    tmp_path: Path, settings: Mapping[str, Any]
) -> None:
    source = write_micro(tmp_path / "model")
    (source / "generation_config.json").write_text(json.dumps(settings))
    model, tokenizer = open_model(str(source), ModelLoadArgs())
    set_end_ids(model, tokenizer)
    model.save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert not {"temperature", "top_p", "top_k", "length_penalty", "early_stopping"} & saved.keys()
    assert saved.get("max_length") == settings.get("max_length")


def test_sampling_settings_of_a_model_that_samples_are_kept(tmp_path: Path) -> None:
    source = write_micro(tmp_path / "model")
    (source / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.6}))
    model, _ = open_model(str(source), ModelLoadArgs())
    assert model.generation_config.temperature == 0.6


def test_a_separate_output_layer_beside_tie_word_embeddings_is_used_and_said(tiny_llama, tmp_path, caplog):
    model = tiny_llama()
    model.save_pretrained(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tie_word_embeddings": True}))
    with caplog.at_level(logging.WARNING):
        loaded = load_model(str(tmp_path / "model"))
    assert "tie_word_embeddings" in caplog.text
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    loaded.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["tie_word_embeddings"] is False


def test_what_is_saved_says_whether_the_output_layer_is_tied(tiny_llama):
    tied = tiny_llama(tie_word_embeddings=True)
    assert state_tying(tied) is False
    assert tied.config.tie_word_embeddings is True
    tied.lm_head.weight = torch.nn.Parameter(tied.lm_head.weight.detach() + 1)
    assert state_tying(tied) is True
    assert tied.config.tie_word_embeddings is False
