"""RMU on models whose layers and MLP outputs have other names than Llama's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("peft")

from transformers import AutoModelForCausalLM

from atwu.modeling.layers import adapters_by_weight
from atwu.modeling.load import load_model
from tests.training.conftest import unlearn, with_tokenizer

RMU = {"method": "rmu", "layer": 1}
OUTPUTS = {
    "gpt2": ("transformer.h", "mlp.c_proj"),
    "bert": ("bert.encoder.layer", "output.dense"),
}
"""Where the layers of a type are, and the output matrix of their MLP."""


@pytest.fixture(scope="module", params=OUTPUTS)
def folder(request: pytest.FixtureRequest, model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_tokenizer(request.param, model_folder, tmp_path_factory.mktemp("layers") / request.param)


def test_only_mlp_output_weights_change(folder, data_files, tmp_path):
    unlearn(folder, data_files, tmp_path / "out", lora_r=0, **RMU)
    before, after = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (folder, tmp_path / "out"))
    layers, output = OUTPUTS[folder.name]
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {f"{layers}.{index}.{output}.{part}" for index in (0, 1) for part in ("weight", "bias")}


def test_adapters_are_only_on_mlp_outputs(folder, data_files, tmp_path):
    unlearn(folder, data_files, tmp_path / "out", save_adapter=True, **RMU)
    adapted = load_model(str(tmp_path / "out"), merge=False)
    layers, output = OUTPUTS[folder.name]
    assert set(adapters_by_weight(adapted.get_base_model())) == {f"{layers}.{i}.{output}.weight" for i in (0, 1)}
    assert all(bool(each.any()) for name, each in adapted.named_parameters() if "lora_B" in name)


def test_a_model_without_mlps_is_rejected(model_folder, data_files, tmp_path):
    with_tokenizer("mamba", model_folder, tmp_path / "mamba")
    with pytest.raises(ValueError, match=r"layer 0 of MambaForCausalLM.*mlp\.down_proj"):
        unlearn(tmp_path / "mamba", data_files, tmp_path / "out", lora_r=0, **RMU)
    with pytest.raises(ValueError, match="'down_proj'"):
        unlearn(tmp_path / "mamba", data_files, tmp_path / "out", **RMU)
    assert not (tmp_path / "out").exists()
