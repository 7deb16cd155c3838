"""Damaged model, adapter and scorer folders and GGUF files: read as if whole, or one line names the file.

The damages are those of broken downloads and copies, and of settings edited by hand.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.cli.app import EXPECTED, in_a_line
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling import named_models
from atwu.modeling.adapters import Lora, attach
from atwu.modeling.gguf_write import write_gguf
from atwu.modeling.load import load_model
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.modeling.scratch import train_tokenizer

WEIGHTS, ADAPTER, LAYER = "model.safetensors", "adapter_model.safetensors", "model.layers.1.self_attn.q_proj.weight"
Change = Callable[[Any], Any]


def content(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def fields(**changes: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def tensors(change: Change) -> Callable[[Path], object]:
    return lambda path: save_file(change(load_file(path)), path, metadata={"format": "pt"})


TRUNCATED = content(lambda whole: whole[: len(whole) // 2])
PAGE = content(lambda whole: b"<!DOCTYPE html><html><body>404: not found</body></html>")
POINTER = content(lambda whole: b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 999\n")
MISSING = Path.unlink


def not_a_number(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = next(name for name in weights if name == LAYER or "layers" not in name or ADAPTER)
    weights[name].view(-1)[-1] = float("nan")
    return weights


DAMAGES: list[tuple[str, str, str, Callable[[Path], object]]] = [
    *(
        (of, file, how, do)
        for of, files in {
            "model": ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", WEIGHTS),
            "adapter": ("adapter_config.json", ADAPTER),
            "scorer": ("scorer_config.json", "scorer.safetensors"),
            "gguf": ("small.gguf",),
        }.items()
        for file in files
        for how, do in {"truncated": TRUNCATED, "a page": PAGE, "a pointer": POINTER}.items()
    ),
    *(("model", file, "missing", MISSING) for file in ("config.json", "tokenizer.json", WEIGHTS)),
    ("adapter", ADAPTER, "missing", MISSING),
    ("model", "config.json", "model_type", fields(model_type="nothing")),
    ("model", "config.json", "hidden_act", fields(hidden_act="nothing")),
    ("model", "config.json", "other size", fields(hidden_size=64)),
    ("model", "config.json", "fewer layers", fields(num_hidden_layers=1)),
    ("model", "config.json", "text for a number", fields(num_attention_heads="four")),
    ("model", "config.json", "rope_parameters", fields(rope_parameters={"rope_type": "nothing"})),
    ("model", "tokenizer_config.json", "class", fields(tokenizer_class="Nothing")),
    ("model", WEIGHTS, "NaN", tensors(not_a_number)),
    ("model", WEIGHTS, "tensor missing", tensors(lambda weights: {n: w for n, w in weights.items() if n != LAYER})),
    ("model", WEIGHTS, "renamed", tensors(lambda weights: {n.replace("q_proj", "q"): w for n, w in weights.items()})),
    ("adapter", "adapter_config.json", "other kind", fields(peft_type="LOHA")),
    ("adapter", "adapter_config.json", "other rank", fields(r=3)),
    ("adapter", ADAPTER, "NaN", tensors(not_a_number)),
    (
        "gguf",
        "small.gguf",
        "renamed",
        content(lambda whole: whole.replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight")),
    ),
    ("gguf", "small.gguf", "unknown architecture", content(lambda whole: whole.replace(b"llama", b"lamal"))),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders `model`, `adapter`, `scorer` and `gguf`."""
    folder = tmp_path_factory.mktemp("folders")
    tokenizer = train_tokenizer(["Question: Where was Orla Venn born?", "Answer: In Kelbury."], vocab_size=280)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "gguf").mkdir()
    path = folder / "gguf" / "small.gguf"
    list(write_gguf(LlamaForCausalLM(config), tokenizer, path, "F32", name="s", progress=False))
    attach(load_model(str(folder / "model")), Lora(r=2), seed=0).save_pretrained(folder / "adapter")
    (folder / "scorer").mkdir()
    TokenScorer(32).save_pretrained(folder / "scorer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATWU_CACHE", str(folder / "cache"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield folder


def read(folder: Path, of: str) -> Any:
    """Return what a command reads from a folder: token ids and logits, or the scorer's weights."""
    if of == "scorer":
        return [parameter.tolist() for parameter in TokenScorer.from_pretrained(folder).parameters()]
    named_models._gguf.cache_clear()
    model, tokenizer = open_model(str(folder / "small.gguf" if of == "gguf" else folder), ModelLoadArgs(), device="cpu")
    ids = Encoder(tokenizer).encode(Example.from_qa("Where was Orla Venn born?", "In Kelbury.")).input_ids
    with torch.no_grad():
        return ids, model(input_ids=torch.tensor([ids])).logits.tolist()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("of", "file", "how", "do"), DAMAGES, ids=lambda part: part if isinstance(part, str) else "")
def test_damages_are_rejected_by_name_or_change_nothing(
    of: str, file: str, how: str, do: Callable[[Path], object], whole: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(whole / of, tmp_path / "damaged"))
    do(folder / file)
    try:
        found = read(folder, of)
    except EXPECTED as error:
        line = in_a_line(error)
        assert re.search(rf"{re.escape(file)}|the checkpoint|\.safetensors", line), line
        assert str(folder) in line
    else:
        assert found == read(whole / of, of)
