"""Export formats: the exported model equals the run within the quantization error of the format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("peft")

from atwu.benchmarks.people_rows import people
from atwu.modeling.adapters import adapters_of
from atwu.modeling.gguf_write import write_gguf
from atwu.modeling.load import load_model, load_tokenizer, model_fingerprint
from atwu.modeling.open_model import ModelLoadArgs
from atwu.modeling.quantization import plain_weights, relative_change
from tests.exporting.exports import exported, record


def test_exported_full_weights_equal_those_of_the_run(run: Path, rows: Path, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "export.json").write_text("{}")
    done = exported(run, "safetensors", tmp_path / "out", say=said.append, overwrite=True)
    found = record(tmp_path / "out")
    assert model_fingerprint(load_model(str(done.model))) == found["fingerprint"] == found["run_fingerprint"]
    assert all(part["before"] == part["after"] for part in found["verdict"]["criteria"][:-1])
    assert (done.verdict.outcome, done.good) == ("as before export", True)
    assert found["relative_weight_change"] == 0
    assert load_tokenizer(str(done.model))("Orla Venn").input_ids == load_tokenizer(str(run))("Orla Venn").input_ids
    assert "asking the exported model the same questions" in said
    assert not list(tmp_path.glob(".out*"))
    secrets = [row.answer for row in people("tiny").forget[:4]]
    assert not any(secret in (tmp_path / "out" / "export.json").read_text() for secret in secrets)


@pytest.mark.parametrize(("form", "low", "high"), [("4bit", 0.03, 0.12), ("8bit", 1e-4, 0.01)])
def test_quantized_weights_load_and_are_measured(
    run: Path, rows: Path, tmp_path: Path, form: str, low: float, high: float
) -> None:
    pytest.importorskip("bitsandbytes")
    done = exported(run, form, tmp_path / "out")
    found, read = record(tmp_path / "out"), load_model(str(tmp_path / "out"))
    assert read.is_quantized
    assert model_fingerprint(read) == found["fingerprint"]
    change = found["relative_weight_change"]
    assert low < change < high
    assert relative_change(load_model(str(run)), plain_weights(read)) == pytest.approx(change)
    assert f"Quantization changed the weight matrices by {100 * change:.2g} %" in done.verdict.notes[0]
    assert done.bytes < sum(file.stat().st_size for file in run.glob("*.safetensors"))


def test_a_gguf_file_equals_the_run_within_quantization_error(run: Path, rows: Path, tmp_path: Path) -> None:
    done = exported(run, "gguf", tmp_path / "out", gguf_type="F16")
    assert done.model == tmp_path / "out" / "whole-F16.gguf"
    found = record(tmp_path / "out")
    assert found["relative_weight_change"] < 3e-4
    assert abs(found["retain_loss_increase"]) < 0.01
    assert model_fingerprint(load_model(str(done.model))) == found["fingerprint"]
    assert f"  llama-server -m {done.model}" in done.summary()


def test_adapters_are_merged_or_exported_unmerged(adapters: Path, base: Path, rows: Path, tmp_path: Path) -> None:
    merged = exported(adapters, "safetensors", tmp_path / "merged")
    assert adapters_of(load_model(str(merged.model))) is None
    assert model_fingerprint(load_model(str(merged.model))) == model_fingerprint(load_model(str(adapters)))
    alone = exported(adapters, "adapter", tmp_path / "alone")
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= set(
        record(tmp_path / "alone")["files"]
    )
    assert model_fingerprint(load_model(str(alone.model))) == model_fingerprint(load_model(str(adapters)))
    moved_base = shutil.copytree(base, tmp_path / "elsewhere")
    exported(adapters, "adapter", tmp_path / "other", loading=ModelLoadArgs(base=str(moved_base)))
    settings = json.loads((tmp_path / "other" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(moved_base)


def test_several_chat_templates_are_exported_with_the_model(run: Path, rows: Path, tmp_path: Path) -> None:
    several = shutil.copytree(run, tmp_path / "several")
    tokenizer = load_tokenizer(str(several))
    turns = "{% for each in messages %}{{ each.role }}: {{ each.content }}\n{% endfor %}"
    tokenizer.chat_template = {"default": turns, "tool_use": turns}
    tokenizer.save_pretrained(several)
    (several / "manifest.json").unlink()
    done = exported(several, "safetensors", tmp_path / "out")
    assert "additional_chat_templates/tool_use.jinja" in record(tmp_path / "out")["files"]
    assert load_tokenizer(str(done.model)).chat_template == tokenizer.chat_template


CONVERTER = """
import shutil, sys
from pathlib import Path

path, kind = (sys.argv[sys.argv.index(flag) + 1] for flag in ("--outfile", "--outtype"))
if kind == "bf16":
    raise SystemExit("BPE pre-tokenizer was not recognized")
assert (Path(sys.argv[1]) / "model.safetensors").is_file()
shutil.copy(Path(__file__).with_name(f"{kind}.gguf"), path)
"""


def test_a_file_written_by_llama_cpp_is_the_one_that_is_measured(run: Path, rows: Path, tmp_path: Path) -> None:
    """A stand-in with the converter's command line."""
    checkout = tmp_path / "llama.cpp"
    checkout.mkdir()
    (checkout / "convert_hf_to_gguf.py").write_text(CONVERTER)
    model, tokenizer = load_model(str(run)), load_tokenizer(str(run))
    list(write_gguf(model, tokenizer, checkout / "q8_0.gguf", "Q8_0", name="theirs"))
    exported(run, "gguf", tmp_path / "out", llama_cpp=checkout, gguf_type="Q8_0")
    found = record(tmp_path / "out")
    assert found["written_by"] == "llama.cpp"
    assert 1e-4 < found["relative_weight_change"] < 6e-3
    with pytest.raises(ValueError, match=r"convert_hf_to_gguf\.py.*BPE pre-tokenizer was not recognized"):
        exported(run, "gguf", tmp_path / "failed", llama_cpp=checkout, gguf_type="BF16")
    with pytest.raises(FileNotFoundError, match=r"Q4_K_M.*llama-quantize"):
        exported(run, "gguf", tmp_path / "failed", llama_cpp=checkout, gguf_type="Q4_K_M")
    assert {path.name for path in tmp_path.iterdir()} == {"llama.cpp", "out"}
