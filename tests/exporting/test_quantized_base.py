"""Adapters on a quantized base, and which base and code an export may load."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("peft")

from atwu.exporting import export_source as source
from atwu.exporting.export_source import read_source
from atwu.modeling.load import add_adapter, load_model, load_tokenizer
from atwu.modeling.open_model import ModelLoadArgs
from atwu.modeling.quantization import dequantize_model, quantize_model, relative_change
from tests.exporting.exports import exported


def test_adapters_are_merged_into_the_dequantized_base_they_were_trained_on(
    adapters: Path, base: Path, rows: Path, tmp_path: Path
) -> None:
    """Whether the run quantized its base, or the base is stored in four bits."""
    pytest.importorskip("bitsandbytes")
    small = quantize_model(load_model(str(base)), "4bit")
    expected = add_adapter(dequantize_model(small), str(adapters))
    trained = shutil.copytree(adapters, tmp_path / "trained")
    run = json.loads((trained / "run.json").read_text())
    run["config"]["quantize"] = "4bit"
    (trained / "run.json").write_text(json.dumps(run))
    (trained / "manifest.json").unlink()
    said: list[str] = []
    done = exported(trained, "safetensors", tmp_path / "one", say=said.append)
    assert any("quantized to 4bit" in line for line in said)
    assert relative_change(expected, load_model(str(done.model)).named_parameters()) == 0
    assert relative_change(load_model(str(adapters)), expected.named_parameters()) > 0.02

    stored = tmp_path / "stored"
    quantize_model(load_model(str(base)), "4bit").save_pretrained(stored)
    load_tokenizer(str(base)).save_pretrained(stored)
    done = exported(adapters, "safetensors", tmp_path / "two", loading=ModelLoadArgs(base=str(stored)))
    assert relative_change(expected, load_model(str(done.model)).named_parameters()) == 0


def noting(option: str, asked: list[object]) -> Callable[..., torch.nn.Module]:
    """Load models by name, and record the values of one option."""

    def load(name: str, **how: object) -> torch.nn.Module:
        asked.append(how[option])
        return load_model(name)

    return load


def test_the_quantized_base_is_loaded_at_the_recorded_commit(adapters: Path, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    noted = shutil.copytree(adapters, tmp_path / "noted")
    settings = json.loads((noted / "adapter_config.json").read_text()) | {"revision": "0123abc"}
    (noted / "adapter_config.json").write_text(json.dumps(settings))
    (noted / "manifest.json").unlink()
    asked: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "load_model", noting("revision", asked))
        for loading in (
            ModelLoadArgs(),
            ModelLoadArgs(revision="main"),
            ModelLoadArgs(base=settings["base_model_name_or_path"]),
        ):
            read_source(noted, loading)._quantized_base("4bit", torch.device("cpu"))
    assert asked == ["0123abc", "main", None]
