"""Exports that are impossible are rejected before any work, or removed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft")

from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.exporting import export_run as shipping
from atwu.exporting.export_run import export
from atwu.exporting.model_formats import same_tokens
from atwu.modeling.load import load_tokenizer
from atwu.modeling.open_model import ModelLoadArgs
from atwu.modeling.scratch import ScratchShape, scratch_model
from tests.exporting.exports import exported

REFUSED = [
    ("nowhere", {}, "nowhere"),
    ("", {}, r"config\.json"),
    ("taken.txt", {}, r"taken\.txt is a file; give the folder of a run or of a model"),
    ("run", {"form": "adapter"}, "adapter.*--format safetensors"),
    ("run", {"form": "onnx"}, "format.*safetensors, adapter, 4bit, 8bit.*gguf.*'onnx'"),
    ("run", {"gguf_type": "Q4_K_M"}, "gguf_type.* F32, .*--llama-cpp PATH"),
    ("run", {"llama_cpp": "."}, r"convert_hf_to_gguf\.py.*--llama-cpp"),
    ("run", {"max_retain_increase": float("inf")}, "max_retain_increase must be a finite number >= 0, got inf"),
    ("run", {"output": "taken"}, "taken .*output"),
    ("run", {"forget": "nothing.jsonl"}, "nothing.jsonl"),
    ("run", {"loading": ModelLoadArgs(revision="v1")}, "revision='v1' .*Hub name"),
    ("run", {"loading": ModelLoadArgs(base="x")}, "base='x' requires an adapter folder"),
    ("plain", {}, "--forget FILE"),
    ("stale", {}, "rows.*--forget FILE"),
    ("lost", {}, "--forget FILE"),
    ("qwen", {}, "GGUF.*qwen2.*[Ll]lama"),
    ("words", {}, "Punctuation and"),
]


@pytest.mark.parametrize(("name", "more", "message"), REFUSED)
def test_impossible_exports_are_rejected_before_weights_are_read(
    name: str,
    more: dict[str, Any],
    message: str,
    run: Path,
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("atwu.exporting.export_source.open_model", lambda *_, **__: pytest.fail("weights were read"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken.txt").touch()
    folder = run if name == "run" else tmp_path / name
    if name == "plain":
        folder = base
    elif name in ("stale", "lost", "qwen", "words"):
        shutil.copytree(run, folder)
        (folder / "manifest.json").unlink()  # it is edited
        file = folder / ("config.json" if name == "qwen" else "run.json")
        told = json.loads(file.read_text())
        if name == "qwen":
            told |= {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
        elif name == "stale":
            told["data"]["forget"]["fingerprint"] = "0" * 64
        elif name == "lost":
            told["data"]["forget"]["source"] = "gone.jsonl"
        file.write_text(json.dumps(told))
    if name == "words":
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        steps = [{"type": "Punctuation", "behavior": "Isolated"}, tokenizer["pre_tokenizer"]]
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    options = {"form": "gguf", "output": "out"} | more
    with pytest.raises((ValueError, OSError), match=message) as caught:
        export(folder, options.pop("form"), **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"taken", "taken.txt", "stale", "lost", "qwen", "words"}


def test_an_unfinished_run_and_missing_packages_give_clear_errors(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.incomplete").mkdir()
    with pytest.raises(FileNotFoundError, match=r"mine\.incomplete"):
        export(tmp_path / "mine", "safetensors")
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    with pytest.raises(ImportError, match=r"bitsandbytes.*pip install 'atwu\[quantize\]'"):
        export(run, "4bit", output=tmp_path / "out")


def test_an_export_that_loads_differently_is_removed(
    run: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "model_fingerprint", lambda model: str(id(model)))
    with pytest.raises(AtwuError, match="loaded model"):
        exported(run, "safetensors", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_tokenizers_are_compared_on_more_than_the_rows(run: Path) -> None:
    tokenizer, other = load_tokenizer(str(run)), load_tokenizer(str(run))
    same_tokens(tokenizer, other, [Example.from_qa("Who?", "Orla.")])
    other.add_special_tokens({"additional_special_tokens": ["<b>"]})
    with pytest.raises(ValueError, match=r"1 of 7 texts.*it's we'll DON'T"):
        same_tokens(tokenizer, other, [Example.from_qa("Who?", "Orla.")])


@pytest.mark.parametrize("through_link", [False, True])
def test_an_export_does_not_replace_the_model_that_it_reads(
    through_link: bool, run: Path, rows: Path, tmp_path: Path
) -> None:
    first = exported(run, "safetensors", tmp_path / "plain").model
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    output = first
    if through_link:
        output = tmp_path / "link"
        output.symlink_to(first)
    sets = {name: str(rows / f"{name}.jsonl") for name in ("forget", "retain")}
    with pytest.raises(ValueError, match="which the output replaces"):
        exported(first, "safetensors", output, overwrite=True, **sets)
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before


@pytest.mark.parametrize("form", ["gguf", "safetensors"])
def test_a_tokenizer_larger_than_the_model_is_named(form: str, base: Path, rows: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "narrow"))
    shape = ScratchShape(vocab_size=200, hidden_size=64, layers=2, heads=2, intermediate_size=128)
    scratch_model(shape).save_pretrained(folder)
    sets = {name: str(rows / f"{name}.jsonl") for name in ("forget", "retain")}
    with pytest.raises(ValueError, match=r"tokenizer and model of .*narrow.* do not match.* only 200 embeddings"):
        exported(folder, form, tmp_path / "out", **sets)
