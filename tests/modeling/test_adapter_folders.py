"""Adapter folders load like models, invalid ones are rejected by name; quantized weights with adapters."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

pytest.importorskip("peft")

from safetensors.torch import load_file, save_file

from atwu.modeling.adapters import Lora, adapters_of, attach, merge_adapters, original_model
from atwu.modeling.load import (
    base_of,
    check_model_name,
    check_vocabulary,
    load_config,
    load_model,
    load_tokenizer,
    model_fingerprint,
    weight_bytes,
)
from tests.micro_models import write_micro
from tests.modeling.small_models import logps, shaken


@pytest.fixture(scope="module")
def base_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    texts = ["Orla Venn was born in Kelbury.", "Tavi Brook lives in Oststrand."]
    return write_micro(folder, texts)


@pytest.fixture
def adapter_folder(base_folder, tmp_path):
    model = shaken(attach(load_model(str(base_folder)), Lora(r=3), seed=0))
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def edited(folder, **changes):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return str(folder)


def test_adapter_folder_loads_like_a_model(adapter_folder, base_folder, batch):
    name, rows = str(adapter_folder), batch()
    check_model_name(name)
    assert base_of(name) == str(base_folder.resolve())
    assert base_of(str(base_folder)) == str(base_folder)
    beside, plain = load_model(name, merge=False), load_model(name)
    assert adapters_of(beside) is beside
    assert adapters_of(plain) is None
    assert not beside.training
    assert not plain.training
    torch.testing.assert_close(logps(plain, rows), logps(beside, rows), atol=1e-5, rtol=1e-5)
    with original_model(beside):
        assert torch.equal(logps(beside, rows), logps(load_model(str(base_folder)), rows))
    assert (logps(plain, rows) - logps(load_model(str(base_folder)), rows)).abs().max() > 1e-3
    weights = (base_folder / "model.safetensors").stat().st_size
    assert weight_bytes(name) == weights + (adapter_folder / "adapter_model.safetensors").stat().st_size
    assert weight_bytes(str(base_folder)) == weights


def test_second_adapter_does_not_refer_to_the_base_without_the_first(adapter_folder):
    plain = load_model(str(adapter_folder))
    assert not attach(plain, Lora(r=2), seed=0).peft_config["default"].base_model_name_or_path


def test_tokenizer_of_adapter_or_base(adapter_folder, base_folder):
    name = str(adapter_folder)
    theirs = load_tokenizer(str(base_folder))
    assert load_tokenizer(name).get_vocab() == theirs.get_vocab()
    check_vocabulary(load_tokenizer(name), load_config(name), name=name)
    theirs.add_tokens(["<extra>"])
    theirs.save_pretrained(adapter_folder)
    assert "<extra>" in load_tokenizer(name).get_vocab()


def test_the_base_model_can_be_set(adapter_folder, base_folder, tmp_path):
    moved = shutil.copytree(base_folder, tmp_path / "moved")
    name = edited(adapter_folder, base_model_name_or_path=str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match=r"adapter .*gone.*base="):
        load_model(name)
    assert type(load_model(name, base=str(moved))).__name__ == "LlamaForCausalLM"
    assert len(load_tokenizer(name, base=str(moved))) == 300
    assert weight_bytes(name, base=str(moved)) == weight_bytes(name, base=str(base_folder))
    with pytest.raises(ValueError, match=r"base.*adapter"):
        load_model(str(base_folder), base=str(moved))


def test_errors_of_an_unusable_base_name_it_and_the_adapter(adapter_folder, base_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(base_folder.parent)
    for relative in (f"./{base_folder.name}", base_folder.name, "../elsewhere"):
        name = edited(adapter_folder, base_model_name_or_path=relative)
        with pytest.raises(ValueError, match=rf"adapter {name} .*'{relative}'"):
            check_model_name(name)
    name = edited(adapter_folder, base_model_name_or_path=None)
    with pytest.raises(ValueError, match="base model"):
        check_model_name(name)
    other = shutil.copytree(adapter_folder, tmp_path / "other")
    with pytest.raises(ValueError, match="adapter"):
        check_model_name(name, base=str(other))
    name = edited(adapter_folder, base_model_name_or_path="kelbury/base-1b")
    check_model_name(name)
    assert base_of(name) == "kelbury/base-1b"
    assert weight_bytes(name) is None


def test_pickled_and_non_lora_adapters_are_rejected(adapter_folder):
    name, weights = str(adapter_folder), adapter_folder / "adapter_model.safetensors"
    torch.save(load_file(weights), adapter_folder / "adapter_model.bin")
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"adapter_model\.safetensors"):
        load_model(name)
    edited(adapter_folder, peft_type="PROMPT_TUNING")
    with pytest.raises(ValueError, match=r"PROMPT_TUNING.*LoRA"):
        check_model_name(name)
    (adapter_folder / "adapter_config.json").write_text("{")
    with pytest.raises(ValueError, match="JSON"):
        check_model_name(name)


def test_an_adapter_of_another_model_is_rejected(adapter_folder):
    name, weights = str(adapter_folder), adapter_folder / "adapter_model.safetensors"
    tensors = load_file(weights)
    key, tensor = next(iter(tensors.items()))
    broken = [
        ({k: v for k, v in tensors.items() if k != key}, "lacks"),
        (
            tensors | {key.replace("layers.0", "layers.9"): tensor.clone()},
            r"has layers the model lacks, such as .*layers\.9",
        ),
        (tensors | {key: tensor[:, :-1].contiguous()}, "size mismatch"),
    ]
    for changed, message in broken:
        save_file(changed, weights)
        with pytest.raises(ValueError, match=rf"(?s)adapter {name} .*{message}"):
            load_model(name)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings", "ignore:Setting `save_embedding")
def test_adapter_that_cannot_be_merged_stays_separate(base_folder, tmp_path):
    model = shaken(attach(load_model(str(base_folder)), Lora(r=2, targets=("lm_head",)), seed=0))
    model.save_pretrained(tmp_path)
    assert adapters_of(load_model(str(tmp_path))) is not None


def test_quantized_loading_needs_a_gpu(base_folder, adapter_folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    for folder in (base_folder, adapter_folder):
        with pytest.raises(ValueError, match=r"'4bit'.*CUDA"):
            load_model(str(folder), quantize="4bit")
    with pytest.raises(ValueError, match=r"4bit, 8bit.*'3bit'"):
        load_model(str(base_folder), quantize="3bit")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("quantize", ["4bit", "8bit"])
def test_quantized_model_with_adapters(quantize, base_folder, tmp_path, batch, plain_logps):
    pytest.importorskip("bitsandbytes")
    rows = {name: tensor.cuda() for name, tensor in batch(vocab=300).items()}
    base = load_model(str(base_folder), quantize=quantize)
    assert base.is_quantized
    assert model_fingerprint(base) == model_fingerprint(load_model(str(base_folder), quantize=quantize))
    before = logps(base, rows).detach()
    model = shaken(attach(base, Lora(r=2), seed=0))
    values, counted = plain_logps(model, rows)
    torch.testing.assert_close(logps(model, rows)[counted], values.float(), atol=0.05, rtol=0.05)
    logps(model, rows).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.requires_grad)
    with original_model(model):
        torch.testing.assert_close(logps(model, rows), before, atol=0.05, rtol=0.05)
    with pytest.raises(ValueError, match="quantized"):
        merge_adapters(model)
    model.save_pretrained(tmp_path)
    again = load_model(str(tmp_path), quantize=quantize)
    assert adapters_of(again) is again
    torch.testing.assert_close(logps(again, rows), logps(model, rows), atol=0.05, rtol=0.05)
