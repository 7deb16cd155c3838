"""Ways in which files of a model folder, an adapter, a scorer or a GGUF file are damaged."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Damage:
    """One damage of a copied folder."""

    of: str
    """What the folder holds: `model`, `adapter`, `scorer` or `gguf`."""
    file: str
    """The damaged file, which an error must name."""
    how: str
    do: Callable[[Path], object]
    """Damages the folder."""
    names: str = ""
    """The field that an error must name, where it can be known."""
    also: str = ""
    """What an error may name instead, where the file is not known or another one may be wrong."""

    @property
    def name(self) -> str:
        return f"{self.of}: {self.file}: {self.how}"


def _set(file: str, place: tuple[str, ...], value: Any, folder: Path) -> None:
    """Set a value of a JSON file; `...` deletes it."""
    whole = json.loads((folder / file).read_text())
    inside = whole
    for key in place[:-1]:
        inside = inside[key]
    if value is ...:
        inside.pop(place[-1], None)
    else:
        inside[place[-1]] = value
    (folder / file).write_text(json.dumps(whole))


def fields(of: str, file: str, *places: str, values: tuple[Any, ...], named: bool = False) -> Iterator[Damage]:
    """Values of a JSON file, whose keys an error must name if `named`."""
    for place in places:
        for value in values:
            how = f"{place} {'missing' if value is ... else repr(value)[:40]}"
            names = place if named and value is not ... else ""
            yield Damage(of, file, how, partial(_set, file, tuple(place.split("/")), value), names)


def contents(of: str, file: str, *, binary: bool = False) -> Iterator[Damage]:
    """Damages of a file as a whole."""
    changes: dict[str, Callable[[bytes], bytes]] = {
        "empty": lambda content: b"",
        "truncated": lambda content: content[: len(content) // 2],
        "cut before its end": lambda content: content[:-3],
        "zeroed": lambda content: bytes(len(content)),
        "a page": lambda content: b"<!DOCTYPE html><html><body>404: not found</body></html>",
        "a pointer": lambda content: b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 999\n",
    }
    if not binary:
        changes |= {
            "not UTF-8": lambda content: content.replace(b'"', b'"\xff', 1),
            "UTF-16": lambda content: content.decode().encode("utf-16"),
            "a list": lambda content: b"[1, 2]",
            "null": lambda content: b"null",
            "a number": lambda content: b"3",
            "a text": lambda content: b'"text"',
            "an empty object": lambda content: b"{}",
            "nested deeply": lambda content: b'{"a": ' * 100_000 + b"1" + b"}" * 100_000,
        }
    for how, change in changes.items():
        yield Damage(of, file, how, partial(_rewrite, file, change))
    also = {"model.safetensors": "no .safetensors", "adapter_config.json": "config.json"}.get(file, "")
    yield Damage(of, file, "missing", partial(_remove, file), also=also)
    yield Damage(of, file, "a folder", partial(_to_folder, file), also=also)


def _rewrite(file: str, change: Callable[[bytes], bytes], folder: Path) -> None:
    (folder / file).write_bytes(change((folder / file).read_bytes()))


def _remove(file: str, folder: Path) -> None:
    (folder / file).unlink()


def _to_folder(file: str, folder: Path) -> None:
    (folder / file).unlink()
    (folder / file).mkdir()


def _tensors(file: str, change: Callable[[Weights], Weights], folder: Path) -> None:
    save_file(change(load_file(folder / file)), folder / file, metadata={"format": "pt"})


def tensors(of: str, file: str, changes: dict[str, Callable[[Weights], Weights]]) -> Iterator[Damage]:
    for how, change in changes.items():
        yield Damage(of, file, how, partial(_tensors, file, change), also="the checkpoint")


def _with_value(name: str, value: float, weights: Weights) -> Weights:
    changed = weights[name].clone()
    changed.view(-1)[-1] = value
    return weights | {name: changed}


def _header(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    change(header)
    written = json.dumps(header).encode()
    return struct.pack("<Q", len(written)) + written + content[8 + size :]


def _offsets(header: dict[str, Any]) -> None:
    next(value for name, value in header.items() if name != "__metadata__")["data_offsets"] = [0, 10**12]


def _dtype(header: dict[str, Any]) -> None:
    next(value for name, value in header.items() if name != "__metadata__")["dtype"] = "F99"


def headers(of: str, file: str) -> Iterator[Damage]:
    """Damages of a safetensors header."""
    changes: dict[str, Callable[[bytes], bytes]] = {
        "header length 2^63": lambda content: struct.pack("<Q", 2**63) + content[8:],
        "header length 0": lambda content: struct.pack("<Q", 0) + content[8:],
        "header length too small": lambda content: struct.pack("<Q", 20) + content[8:],
        "header is no JSON": lambda content: content[:8] + b"}" + content[9:],
        "offsets outside": lambda content: _header(content, _offsets),
        "unknown dtype": lambda content: _header(content, _dtype),
        "no tensors": lambda content: struct.pack("<Q", 2) + b"{}",
        "appended bytes": lambda content: content + b"\0" * 100,
        "no header": lambda content: content[:5],
    }
    for how, change in changes.items():
        yield Damage(of, file, how, partial(_rewrite, file, change), also="weight files")


def _shards(change: Callable[[dict[str, Any], Path], object], folder: Path) -> None:
    """Split the weights in two shards with an index, and damage it."""
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(weights)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, own in parts.items():
        save_file({name: weights[name] for name in own}, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 1}, "weight_map": {name: file for file, own in parts.items() for name in own}}
    change(index, folder)
    if index is not None and not (folder / INDEX).exists():
        (folder / INDEX).write_text(json.dumps(index))


def shards() -> Iterator[Damage]:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    changes: dict[str, tuple[str, Callable[[dict[str, Any], Path], object]]] = {
        "none": (INDEX, lambda index, folder: None),
        "shard missing": (second, lambda index, folder: (folder / second).unlink()),
        "shard truncated": (second, lambda index, folder: _rewrite(second, lambda content: content[:-9], folder)),
        "shard empty": (second, lambda index, folder: (folder / second).write_bytes(b"")),
        "names another shard": (
            INDEX,
            lambda index, folder: index["weight_map"].update({"lm_head.weight": "x.safetensors"}),
        ),
        "no weight_map": (INDEX, lambda index, folder: index.pop("weight_map")),
        "weight_map a list": (INDEX, lambda index, folder: index.update(weight_map=[1])),
        "weight_map of numbers": (INDEX, lambda index, folder: index["weight_map"].update({"lm_head.weight": 3})),
        "weight_map empty": (INDEX, lambda index, folder: index["weight_map"].clear()),
        "names a file outside": (
            INDEX,
            lambda index, folder: index["weight_map"].update({"lm_head.weight": f"../{folder.name}/{first}"}),
        ),
        "tensor left out": (INDEX, lambda index, folder: index["weight_map"].pop("lm_head.weight")),
        "empty file": (INDEX, lambda index, folder: (folder / INDEX).write_text("")),
        "list": (INDEX, lambda index, folder: (folder / INDEX).write_text("[]")),
        "missing": (INDEX, lambda index, folder: (folder / INDEX).mkdir()),
    }
    for how, (file, change) in changes.items():
        yield Damage("model", file, f"in shards, {how}", partial(_shards, change))


WRONG = (..., None, "text", -1, 0, 10**9, 10**12, [], {}, 1.5)
TEMPLATES = {
    "unclosed": "{% for m in messages %}{{ m.content }}",
    "unknown filter": "{{ messages | nothing }}",
    "unknown name": "{{ nothing.inside }}",
    "wrong type": "{{ messages + 1 }}",
    "endless": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "endless recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "huge text": "{{ 'x' * 10 ** 12 }}",
    "huge power": "{{ 10 ** 10 ** 10 }}",
    "huge range": "{% for a in range(10 ** 9) %}{% endfor %}",
    "attribute of internals": "{{ messages.__class__.__mro__ }}",
    "refuses every turn": "{{ raise_exception('no') }}",
    "without the messages": "hello",
    "empty": "",
    "not UTF-8": None,
}


def _template(text: str | None, folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"{{ \xff\xfe }}" if text is None else text.encode())


def templates() -> Iterator[Damage]:
    for how, text in TEMPLATES.items():
        yield Damage("model", "chat_template.jinja", how, partial(_template, text))


def of_models() -> Iterator[Damage]:
    yield from contents("model", "config.json")
    yield from fields(
        "model", "config.json", "num_hidden_layers", "vocab_size", "hidden_size", values=WRONG, named=True
    )
    yield from fields(
        *("model", "config.json"),
        *("intermediate_size", "num_attention_heads", "num_key_value_heads"),
        values=(..., "text", -1, 10**9, [], 1.5),
        named=True,
    )
    yield from fields("model", "config.json", "model_type", values=(..., None, "nothing", 3, [], "gpt2", "bert", "t5"))
    yield from fields("model", "config.json", "architectures", values=(..., None, "text", 3, [], ["Nothing"], [3]))
    yield from fields("model", "config.json", "hidden_act", values=(..., None, "nothing", 3, []))
    yield from fields("model", "config.json", "rms_norm_eps", values=(..., None, "text", -1, -1.0, 10**9, []))
    yield from fields(
        "model", "config.json", "rope_parameters", values=(..., None, "text", 3, [], {}, {"rope_type": "nothing"})
    )
    yield from fields(
        "model", "config.json", "rope_parameters/rope_theta", values=(..., None, "text", 0, -1, 10**400, [])
    )
    yield from fields("model", "config.json", "max_position_embeddings", values=(..., None, "text", -1, 0, 10**12, []))
    yield from fields("model", "config.json", "head_dim", values=(..., None, "text", -1, 0, 7, 10**9))
    yield from fields("model", "config.json", "tie_word_embeddings", values=(..., None, "text", 3))
    yield from fields("model", "config.json", "dtype", values=(..., None, "nothing", 3, [], "int8"))
    yield from fields(
        "model", "config.json", "eos_token_id", "pad_token_id", values=(..., "text", -1, 10**9, [], [[1]])
    )
    yield from fields(
        "model", "config.json", "quantization_config", values=(None, "text", 3, [], {}, {"quant_method": "nothing"})
    )
    yield from fields("model", "config.json", "auto_map", values=("text", 3, {"AutoConfig": "code.Config"}))
    yield from contents("model", WEIGHTS, binary=True)
    yield from headers("model", WEIGHTS)
    layer = "model.layers.1.self_attn.q_proj.weight"
    yield from tensors(
        "model",
        WEIGHTS,
        {
            "NaN": partial(_with_value, layer, float("nan")),
            "infinite": partial(_with_value, layer, float("inf")),
            "NaN in an embedding": partial(_with_value, "model.embed_tokens.weight", float("nan")),
            "NaN in the norm": partial(_with_value, "model.norm.weight", float("nan")),
            "tensor missing": lambda weights: {name: value for name, value in weights.items() if name != layer},
            "layer missing": lambda weights: {n: v for n, v in weights.items() if "layers.0." not in n},
            "all renamed": lambda weights: {f"nothing.{name}": value for name, value in weights.items()},
            "one renamed": lambda weights: {n.replace("q_proj", "q"): v for n, v in weights.items()},
            "added": lambda weights: weights | {"nothing.weight": torch.zeros(3)},
            "other shape": lambda weights: weights | {layer: torch.zeros(3, 4)},
            "transposed": lambda weights: (
                weights | {(n := "model.layers.0.mlp.up_proj.weight"): weights[n].T.contiguous()}
            ),
            "scalar": lambda weights: weights | {layer: torch.tensor(1.0)},
            "no elements": lambda weights: weights | {layer: torch.zeros(0)},
            "integers": lambda weights: weights | {layer: weights[layer].mul(100).to(torch.int8)},
            "fewer embeddings": lambda weights: weights | {(n := "model.embed_tokens.weight"): weights[n][:10].clone()},
        },
    )
    yield from shards()
    yield from contents("model", "tokenizer.json")
    yield from fields(
        *("model", "tokenizer.json"),
        *("model", "model/type", "model/vocab", "model/merges", "added_tokens", "version"),
        values=(..., None, "text", 3, [3], {}, {"type": "nothing"}),
    )
    yield from fields(
        "model",
        "tokenizer.json",
        "pre_tokenizer",
        "decoder",
        values=(..., None, "text", 3, [3], {}, {"type": "nothing"}),
    )
    yield from fields(
        "model", "tokenizer.json", "model/vocab/Question", "model/vocab/a", values=(-1, 10**9, "text", 1.5)
    )
    yield from contents("model", "tokenizer_config.json")
    yield from fields(
        "model", "tokenizer_config.json", "tokenizer_class", values=(..., None, 3, [], "Nothing", "BertTokenizer")
    )
    yield from fields(
        "model", "tokenizer_config.json", "eos_token", values=(..., None, 3, [], {}, "", {"content": 3}, "<nothing>")
    )
    yield from fields("model", "tokenizer_config.json", "model_max_length", values=(..., "text", -1, 0, []))
    yield from fields(
        "model", "tokenizer_config.json", "added_tokens_decoder", values=("text", {"x": {}}, {"0": "text"})
    )
    yield from fields("model", "tokenizer_config.json", "extra_special_tokens", values=("text", 3, {"a": 3}))
    yield from templates()
    yield from contents("model", "generation_config.json")
    yield from fields(
        *("model", "generation_config.json"),
        *("eos_token_id", "pad_token_id", "max_length"),
        values=("text", -1, 10**12, [], {}),
    )
    yield from fields("model", "generation_config.json", "temperature", "top_k", "top_p", values=("text", -1, 0, []))
    yield from fields("model", "generation_config.json", "cache_implementation", values=("nothing", 3))


def of_adapters() -> Iterator[Damage]:
    file = "adapter_config.json"
    yield from contents("adapter", file)
    yield from fields("adapter", file, "peft_type", values=(..., None, 3, "nothing", "IA3"))
    yield from fields("adapter", file, "r", values=(..., None, "text", -1, 0, 7, 10**9, 1.5, []))
    yield from fields("adapter", file, "lora_alpha", values=(..., None, "text", [], 10**400))
    yield from fields("adapter", file, "target_modules", values=(..., None, 3, [], ["nothing"], "(", {}, [3]))
    yield from fields("adapter", file, "base_model_name_or_path", values=(..., None, 3, "", []))
    yield from fields("adapter", file, "modules_to_save", values=(["lm_head"],))
    yield from fields("adapter", file, "trainable_token_indices", values=([3],))
    for base in ("/nothing", "nothing"):
        do = partial(_set, file, ("base_model_name_or_path",), base)
        yield Damage("adapter", file, f"base model {base}", do, also="nothing")
    yield from fields("adapter", file, "nothing", "lora_dropout", "bias", "task_type", values=("text", 3, None))
    yield from contents("adapter", "adapter_model.safetensors", binary=True)
    yield from headers("adapter", "adapter_model.safetensors")

    def first(weights: Weights) -> str:
        return sorted(weights)[0]

    yield from tensors(
        "adapter",
        "adapter_model.safetensors",
        {
            "NaN": lambda weights: _with_value(first(weights), float("nan"), weights),
            "tensor missing": lambda weights: {n: v for n, v in weights.items() if n != first(weights)},
            "one renamed": lambda weights: {n.replace("q_proj", "q"): v for n, v in weights.items()},
            "other shape": lambda weights: weights | {first(weights): torch.zeros(3, 4)},
            "added": lambda weights: weights | {"base_model.model.nothing.weight": torch.zeros(3)},
            "integers": lambda weights: weights | {first(weights): weights[first(weights)].to(torch.int32)},
        },
    )


def of_scorers() -> Iterator[Damage]:
    file = "scorer_config.json"
    yield from contents("scorer", file)
    yield from fields("scorer", file, "hidden_size", values=(..., None, "text", -1, 0, 1.5, []), named=True)
    yield from fields("scorer", file, "hidden_size", values=(7, 10**12))
    yield from fields("scorer", file, "bias", values=(..., None, "text", 3), named=True)
    yield from fields("scorer", file, "bias", values=(False,))
    yield from fields("scorer", file, "hidden_position", values=(..., None, "nothing", 3), named=True)
    yield from fields("scorer", file, "prior_strength", values=("text", [], -1), named=True)
    weights = "scorer.safetensors"
    yield from contents("scorer", weights, binary=True)
    yield from headers("scorer", weights)
    yield from tensors(
        "scorer",
        weights,
        {
            "NaN": partial(_with_value, "linear.weight", float("nan")),
            "tensor missing": lambda found: {n: v for n, v in found.items() if n != "linear.weight"},
            "added": lambda found: found | {"nothing": torch.zeros(3)},
            "other shape": lambda found: found | {"linear.weight": torch.zeros(1, 3)},
            "integers": lambda found: found | {"linear.weight": found["linear.weight"].to(torch.int32)},
            "prior of floats": lambda found: found | {"prior_counts": torch.zeros(3)},
            "prior below 0": lambda found: found | {"prior_counts": torch.tensor([-1])},
        },
    )


def _number(key: str, value: int, content: bytes) -> bytes:
    """Change a 32-bit metadata value of a GGUF file."""
    at = content.index(key.encode()) + len(key) + 4
    return content[:at] + struct.pack("<I", value) + content[at + 4 :]


def of_gguf() -> Iterator[Damage]:
    yield from contents("gguf", "small.gguf", binary=True)
    changes: dict[str, Callable[[bytes], bytes]] = {
        "cut in the header": lambda content: content[:60],
        "cut in a tensor": lambda content: content[:-1000],
        "other magic": lambda content: b"GGUX" + content[4:],
        "version 99": lambda content: content[:4] + struct.pack("<I", 99) + content[8:],
        "no tensors": lambda content: content[:8] + struct.pack("<Q", 0) + content[16:],
        "tensors without end": lambda content: content[:8] + struct.pack("<Q", 2**40) + content[16:],
        "metadata without end": lambda content: content[:16] + struct.pack("<Q", 2**40) + content[24:],
        "one tensor fewer": lambda content: (
            content[:8] + struct.pack("<Q", struct.unpack("<Q", content[8:16])[0] - 1) + content[16:]
        ),
        "tensor renamed": lambda content: content.replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight"),
        "layer renamed": lambda content: content.replace(b"blk.1.", b"blk.7."),
        "outputs renamed": lambda content: content.replace(b"output.weight", b"nothin.weight"),
        "output layer renamed": lambda content: content.replace(b"\0output.weight", b"\0nothin.weight"),
        "no epsilon": lambda content: content.replace(b"rms_epsilon", b"rms_nolispe"),
        "no head_count": lambda content: content.replace(b"head_count", b"head_tnuoc"),
        "architecture unknown": lambda content: content.replace(b"llama", b"lamal"),
        "tokenizer unknown": lambda content: content.replace(b"gpt2", b"tpg2"),
        "no tokens": lambda content: content.replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.nekots"),
        "no merges": lambda content: content.replace(b"tokenizer.ggml.merges", b"tokenizer.ggml.segrem"),
        "no block_count": lambda content: content.replace(b"llama.block_count", b"llama.block_tnuoc"),
        "not UTF-8": lambda content: content.replace(b"llama.block_count", b"llama.block\xffcount"),
    }
    for key in ("block_count", "embedding_length", "attention.head_count", "feed_forward_length"):
        for value in (0, 1, 7, 10**9):
            changes[f"{key} {value}"] = partial(_number, f"llama.{key}", value)
    for how, change in changes.items():
        yield Damage("gguf", "small.gguf", how, partial(_rewrite, "small.gguf", change))


def every_damage() -> list[Damage]:
    return [*of_models(), *of_adapters(), *of_scorers(), *of_gguf()]
