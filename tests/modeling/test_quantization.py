"""Quantized weights (4 and 8 bits) on the CPU: size, saving, loading and dequantization."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from atwu.errors import ModelFileError
from atwu.modeling.load import check_model_name, load_model, model_fingerprint, stored_bits
from atwu.modeling.quantization import dequantize_model, plain_weights, quantize_model, relative_change

IDS = torch.tensor([[1, 5, 9, 20]])


def logits(model: LlamaForCausalLM) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


def test_relative_change(tiny_llama: Callable[..., LlamaForCausalLM]) -> None:
    model = tiny_llama()
    same = dict(model.named_parameters())
    assert relative_change(model, same.items()) == 0
    assert relative_change(model, ((name, 1.1 * weight) for name, weight in same.items())) == pytest.approx(
        0.1, abs=1e-6
    )
    with pytest.raises(ValueError, match=r"embed_tokens\.weight"):
        relative_change(model, list(same.items())[1:])
    with pytest.raises(ValueError, match=r"\bother\b.*shape"):
        relative_change(model, [("other", torch.ones(2))])


@pytest.mark.parametrize(("bits", "low", "high", "near"), [("4bit", 0.05, 0.12, 0.2), ("8bit", 1e-4, 0.01, 0.02)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_quantized_model_is_saved_and_loaded_unchanged(
    tiny_llama: Callable[..., LlamaForCausalLM],
    tmp_path: Path,
    bits: str,
    low: float,
    high: float,
    near: float,
    dtype: torch.dtype,
) -> None:
    pytest.importorskip("bitsandbytes")
    model = tiny_llama(hidden_size=64, intermediate_size=128, tie_word_embeddings=True).to(dtype)
    small = quantize_model(model, bits)
    assert low < relative_change(model, plain_weights(small)) < high
    assert not getattr(model, "is_quantized", False)
    torch.testing.assert_close(logits(small), logits(model), atol=near, rtol=0)
    small.save_pretrained(tmp_path)
    check_model_name(str(tmp_path))
    assert stored_bits(str(tmp_path)) == bits
    read = load_model(str(tmp_path)).to("cpu")
    assert read.dtype == dtype
    assert model_fingerprint(read) == model_fingerprint(small)
    assert torch.equal(logits(read), logits(small))
    again = dequantize_model(read)
    assert stored_bits(str(tmp_path)) == bits
    assert again.dtype == dtype
    assert relative_change(again, plain_weights(small)) < 0.01  # LLM.int8 gives its integers in float16
    assert dequantize_model(again) is again
    again.save_pretrained(tmp_path / "plain")
    assert stored_bits(str(tmp_path / "plain")) is None


@pytest.mark.parametrize(
    ("kind", "end", "value", "said"),
    [
        ("4bit", "nested_absmax", None, r"q_proj\.weight\.nested_absmax is missing"),
        ("4bit", "nested_absmax", float("nan"), "q_proj.weight .* NaN or infinite"),
        ("8bit", "SCB", float("inf"), "q_proj.weight .* NaN or infinite"),
    ],
)
def test_quantized_weights_without_finite_scales_are_rejected(
    kind: str,
    end: str,
    value: float | None,
    said: str,
    tiny_llama: Callable[..., LlamaForCausalLM],
    tmp_path: Path,
) -> None:
    pytest.importorskip("bitsandbytes")
    quantize_model(tiny_llama(hidden_size=64, intermediate_size=64), kind).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = next(name for name in weights if "q_proj" in name and name.endswith(end))
    scales = weights.pop(name)
    kept = {} if value is None else {name: scales * value}
    save_file(weights | kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=f"{tmp_path}.*{said}"):
        load_model(str(tmp_path))


def test_quantized_weights_without_bitsandbytes_are_rejected_before_loading(
    tiny_llama: Callable[..., LlamaForCausalLM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_llama().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    stored = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    file.write_text(json.dumps(json.loads(file.read_text()) | stored))
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    with pytest.raises(ImportError, match=r"pip install 'atwu\[quantize\]'"):
        check_model_name(str(tmp_path))
    with pytest.raises(ImportError, match=r"pip install 'atwu\[quantize\]'"):
        quantize_model(tiny_llama(), "8bit")
    with pytest.raises(ValueError, match=r"4bit, 8bit.*'2bit'"):
        quantize_model(tiny_llama(), "2bit")


def test_rows_that_bitsandbytes_computes_wrongly_are_rejected(tiny_llama: Callable[..., LlamaForCausalLM]) -> None:
    pytest.importorskip("bitsandbytes")
    with pytest.raises(ValueError, match=r"4bit.*model\.layers\.0\.mlp\.down_proj.* 96 .* 64"):
        quantize_model(tiny_llama(hidden_size=64, intermediate_size=96), "4bit")
