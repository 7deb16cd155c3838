"""Training LoRA adapters: trained weights, the reference, and the adapters of a config."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

pytest.importorskip("peft")

from atwu import UnlearnConfig
from atwu.modeling import single_pass
from atwu.modeling.adapters import attach, merge_adapters
from atwu.modeling.layers import unwrap
from atwu.modeling.load import load_model, model_fingerprint
from atwu.modeling.single_pass import fast_path_support
from atwu.training.load_to_train import lora_of, with_adapters
from tests.training.conftest import LORA_SETTINGS, NEEDS
from tests.training.conftest import make_trainer as plain_trainer

CPU = torch.device("cpu")


def make_trainer(folder, output, **changes):
    return plain_trainer(folder, output, **LORA_SETTINGS | {"cache_dir": str(output / "cache")} | changes)


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("method", ["dpo", "rmu", "su_llm", "atwu_npo"])
def test_every_kind_of_method_trains_only_adapters(method, model_folder, tmp_path):
    options = NEEDS.get(method, lambda folder: {})(model_folder)
    trainer = make_trainer(model_folder, tmp_path, method=method, scorer_every=2, weight_decay=0.0, **options)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    assert torch.isfinite(torch.tensor(losses(trainer))).all()
    assert len(losses(trainer)) == 2
    moved = {name for name, value in trainer.model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if "lora_" in name}
    if method == "rmu":
        assert {re.sub(r".*layers", "layers", name.partition(".lora_")[0]) for name in moved} == {
            "layers.0.mlp.down_proj",
            "layers.1.mlp.down_proj",
        }
    else:
        assert len(moved) == 2 * 2 * 7


def test_adapters_on_the_output_layer_train_on_packed_rows(model_folder, tmp_path, monkeypatch):
    options = {"method": "npo", "lora_targets": "lm_head,q_proj", "reference": "adapters"}
    trainer, other = (make_trainer(model_folder, tmp_path, **options) for _ in range(2))
    trainer.train()
    assert fast_path_support(trainer.model, CPU).packed
    assert not fast_path_support(trainer.model, CPU).fused_head
    padded = dataclasses.replace(fast_path_support(other.model, CPU), packed=False)
    monkeypatch.setitem(single_pass._known, unwrap(other.model), padded)
    other.train()
    assert losses(trainer) == pytest.approx(losses(other), abs=1e-5)


def test_configured_adapters_are_those_attached_by_hand(model_folder):
    config = UnlearnConfig(
        **LORA_SETTINGS | {"method": "wga", "lora_targets": "q_proj, v_proj", "lora_alpha": 1.0, "seed": 3}
    )
    model = load_model(str(model_folder))
    lora = lora_of(config, model)
    assert (lora.r, lora.alpha, lora.targets, lora.layers) == (2, 1.0, ("q_proj", "v_proj"), None)
    by_hand = attach(load_model(str(model_folder)), lora, seed=3)
    adapted = with_adapters(model, config)
    assert model_fingerprint(adapted) == model_fingerprint(by_hand)
    assert with_adapters(adapted, config) is adapted
    plain = merge_adapters(adapted)
    assert with_adapters(plain, UnlearnConfig(**LORA_SETTINGS | {"lora_r": 0})) is plain
    steering = lora_of(UnlearnConfig(**LORA_SETTINGS | {"method": "rmu", "layer": 0}), plain)
    assert (steering.targets, steering.layers) == (("down_proj",), (0,))
