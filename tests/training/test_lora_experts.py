"""LoRA on mixtures of experts: experts get adapters, which are saved, resumed, merged and exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("peft")

from transformers import AutoModelForCausalLM

from atwu.exporting.export_run import export
from atwu.modeling.adapters import Lora, attach
from atwu.modeling.forward import forward_tokens
from atwu.modeling.layers import adapters_by_weight
from atwu.modeling.load import load_model
from tests.modeling.architectures import rows
from tests.modeling.small_models import small_model
from tests.training.conftest import logps, unlearn, with_tokenizer

EXPERTS = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}


def on(model) -> set[str]:
    """What has adapters, without the number of the layer."""
    return {name.split(".", 3)[3] for name in adapters_by_weight(model.get_base_model())}


@pytest.fixture(scope="module")
def folder(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of experts, with shared ones' names in it for peft to trip over, and its tokenizer."""
    return with_tokenizer("qwen3_moe", model_folder, tmp_path_factory.mktemp("experts") / "qwen3_moe")


def test_merged_and_unmerged_results_are_the_same_model(folder, data_files, tmp_path):
    for name in ("merged", "adapter"):
        unlearn(
            folder, data_files, tmp_path / name, method="grad_diff", learning_rate=3e-3, save_adapter=name == "adapter"
        )
    beside = load_model(str(tmp_path / "adapter"), merge=False)
    assert on(beside) >= EXPERTS
    ours = logps(beside, folder)
    assert (ours - logps(load_model(str(folder)), folder)).abs().max() > 1e-2
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert plain.config.model_type == folder.name
    torch.testing.assert_close(logps(plain, folder), ours, atol=1e-4, rtol=1e-4)


@pytest.mark.night
def test_an_exported_result_is_the_same_model(folder, data_files, tmp_path):
    longer = shutil.copytree(folder, tmp_path / folder.name)  # some questions of the export have 128 tokens and more
    config = json.loads((longer / "config.json").read_text())
    (longer / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    unlearn(longer, data_files, tmp_path / "adapter", method="grad_diff", learning_rate=3e-3, save_adapter=True)
    shipped = export(tmp_path / "adapter", "safetensors", output=tmp_path / "out").model
    ours = logps(load_model(str(tmp_path / "adapter"), merge=False), folder)
    torch.testing.assert_close(logps(AutoModelForCausalLM.from_pretrained(shipped), folder), ours, atol=1e-4, rtol=1e-4)


def test_rmu_trains_only_the_outputs_of_experts(folder, data_files, tmp_path):
    unlearn(folder, data_files, tmp_path / "out", method="rmu", save_adapter=True)
    adapted = load_model(str(tmp_path / "out"), merge=False)
    assert on(adapted) == {"mlp.experts.down_proj"}
    moved = [bool(p.any()) for name, p in adapted.named_parameters() if "lora_B" in name]
    assert moved == [True, True]


def test_dropout_on_experts_is_rejected_before_weights_are_read(folder, data_files, tmp_path):
    with pytest.raises(ValueError, match=r"mlp\.experts\.down_proj, .*lora_dropout.*\b0\b"):
        unlearn(folder, data_files, tmp_path / "out", method="grad_diff", lora_dropout=0.1)
    assert not list(tmp_path.iterdir())


def test_layers_that_peft_treats_as_experts_get_adapters():
    """deepseek's dense first layer and shared experts are called gate_proj, up_proj, down_proj, as experts once were."""
    adapted = attach(small_model("deepseek_v3"), Lora(r=2), seed=0)
    linear = {
        f"{place}.{name}_proj.weight" for place in ("mlp", "mlp.shared_experts") for name in ("gate", "up", "down")
    }
    assert on(adapted) >= linear | EXPERTS
    assert not any("gate.weight" in name for name in on(adapted))
    named = attach(small_model("deepseek_v3"), Lora(r=2, targets=("shared_experts.up_proj",)), seed=0)
    assert on(named) == {"mlp.shared_experts.up_proj.weight"}


def test_routers_get_adapters_only_if_named():
    assert "mlp.shared_expert_gate.weight" not in on(attach(small_model("qwen2_moe"), Lora(r=2), seed=0))
    named = attach(small_model("qwen2_moe"), Lora(r=2, targets=("shared_expert_gate",)), seed=0)
    assert on(named) == {"mlp.shared_expert_gate.weight"}


def test_layers_whose_weight_is_used_directly_are_skipped_or_rejected():
    adapted = attach(small_model("mamba"), Lora(r=2), seed=0)
    assert on(adapted) == {"mixer.in_proj.weight"}
    with pytest.raises(ValueError, match=r"backbone\.layers\.0\.mixer\.dt_proj"):
        attach(small_model("mamba"), Lora(r=2, targets=("dt_proj",)), seed=0)
    with pytest.raises(ValueError, match="share"):
        attach(small_model("zamba"), Lora(r=2, targets=("shared_transf.self_attn.q_proj",)), seed=0)


def test_targets_that_peft_did_not_adapt_are_rejected_by_name(monkeypatch):
    monkeypatch.setattr("atwu.modeling.adapters._peft_rewrites", lambda model, leaf: False)
    with pytest.raises(ValueError, match=r"peft.*mlp\.down_proj, .*, mlp\.up_proj of Deepseek"):
        attach(small_model("deepseek_v3"), Lora(r=2), seed=0)


def test_adapters_that_peft_could_not_load_are_rejected():
    with pytest.raises(ValueError, match=r"saved.*sconv"):
        attach(small_model("inkling2_text"), Lora(r=2), seed=0)
    kept = attach(small_model("inkling2_text"), Lora(r=2, targets=("q_proj",)), seed=0)
    assert on(kept) == {"self_attn.q_proj.weight"}


@pytest.mark.parametrize("kind", ["qwen3_moe", "deepseek_v3"])
def test_activation_checkpointing_and_half_precision_give_the_same_gradients(kind):
    batch, found = rows(small_model(kind)), {}
    for way in ("plain", "again", "half"):
        adapted = attach(small_model(kind), Lora(r=2), seed=0).train()
        if way == "again":
            adapted.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        with torch.autocast("cpu", torch.bfloat16, enabled=way == "half"):
            forward_tokens(adapted, [batch])[0].logps.sum().backward()
        found[way] = torch.cat([each.grad.flatten() for each in adapted.parameters() if each.requires_grad])
    torch.testing.assert_close(found["again"], found["plain"], atol=1e-5, rtol=1e-5)
    assert torch.cosine_similarity(found["half"], found["plain"], dim=0) > 0.98
