"""Writing a Llama-shaped model with its tokenizer as one GGUF file, which llama.cpp and transformers read."""

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
"""Storage of matrices, from most to fewest bits."""
_FINE = ("F32", "F16", "BF16", "Q8_0")
"""Types that embeddings and the output head may have too; with fewer bits for the rest they get Q8_0, as in llama.cpp."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """One weight on its way into the file."""

    name: str
    """As GGUF calls it."""
    own: str
    """As transformers calls it."""
    weight: Tensor
    kind: GGMLQuantizationType
    heads: int | None
    """Number of heads whose rotary halves llama.cpp expects interleaved."""


def check_gguf(config: Any) -> None:
    """Check that a model can be written and is read back by transformers as the same model.

    Raises:
        ValueError: it is not Llama-shaped; the text says in what.
    """
    if config.model_type != "llama":
        raise ValueError(
            f"it is a {config.model_type} model, and only Llama-shaped ones become GGUF here; {ELSEWHERE}."
        )
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    odd = {
        "rotary positions of another kind than the plain one": rope if rope != "default" else None,
        "biases in its attention": config.attention_bias,
        "biases in its feed-forward layers": config.mlp_bias,
        "an activation other than silu": config.hidden_act if config.hidden_act != "silu" else None,
    }
    for what, there in odd.items():
        if there:
            told = f" ({there})" if isinstance(there, str) else ""
            raise ValueError(
                f"it has {what}{told}, which transformers does not read from GGUF, so it could not be measured."
            )


def write_gguf(
    model: Any, tokenizer: Any, path: Path, kind: str, *, name: str, progress: bool = True
) -> Iterator[tuple[str, Tensor]]:
    """Write the file, and give every weight as it is stored: name in transformers and plain float32 numbers.

    One weight at a time is held besides the model. The file is whole once the iterator is used up, and is then read again and
    compared with what was written.

    Args:
        model: plain Llama-shaped model (`check_gguf`).
        tokenizer: its byte-level BPE tokenizer.
        path: file to write.
        kind: one of `GGUF_TYPES`, for matrices; rows whose length is no multiple of 32 stay in F16, vectors in F32.
        name: of the model, for people to read.
        progress: show a progress bar.

    Raises:
        ValueError: a tokenizer that GGUF cannot hold, or weights too large for float16.
        OSError: what was read again is not what was written.
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
        with np.errstate(over="ignore"):  # looked for below
            written = quantize(_interleaved(plain, each.heads), each.kind)
        back = dequantize(written, each.kind)
        if not bool((abs(back) < float("inf")).all()):
            raise ValueError(f"{each.own} holds numbers that {kind} cannot; write BF16 or F32.")
        writer.write_tensor_data(written)
        digests[each.name] = _digest(written)
        yield each.own, torch.from_numpy(_halves(back, each.heads).copy())
    writer.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())
    found = {tensor.name: _digest(tensor.data) for tensor in gguf.GGUFReader(path).tensors}
    if found != digests:
        raise OSError(f"{path} does not hold what was written to it; is the disk full or failing?")


def read_back_tokenizer(tokenizer: Any, config: Any) -> Any:
    """The tokenizer as transformers reads it out of a GGUF file; a file without weights is written for it, and removed.

    Raises:
        ValueError: a tokenizer that GGUF cannot hold.
    """
    with tempfile.TemporaryDirectory(prefix="atwu-") as folder:
        path = Path(folder) / "vocabulary.gguf"
        writer = _begun(config, tokenizer, path, name="vocabulary")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        return gguf_tokenizer(path, size=config.vocab_size)


def _begun(config: Any, tokenizer: Any, path: Path, *, name: str) -> GGUFWriter:
    """A writer that knows shape and vocabulary."""
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
    """Every weight with its name and storage; a head that is the embedding matrix is left out."""
    import gguf

    config = model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    ends = {id(end.weight) for end in (model.get_input_embeddings(), model.get_output_embeddings())}
    types = gguf.GGMLQuantizationType
    heads = {"attn_q.": config.num_attention_heads, "attn_k.": config.num_key_value_heads}
    for own, weight in model.named_parameters():
        name = names.get_name(own, try_suffixes=(".weight",))
        if name is None:
            raise ValueError(f"GGUF has no name for {own} in a Llama; {ELSEWHERE}.")
        stored = types.Q8_0 if id(weight) in ends and kind.name not in _FINE else kind
        if weight.ndim == 1:
            stored = types.F32
        elif weight.shape[-1] % gguf.GGML_QUANT_SIZES[stored][0]:
            stored = types.F16
        yield _Stored(name, own, weight, stored, next((count for key, count in heads.items() if key in name), None))


def _interleaved(rows: NDArray[np.float32], heads: int | None) -> NDArray[np.float32]:
    """Rows of queries or keys in llama.cpp's order: the two halves of every head by turns."""
    if heads is None:
        return rows
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def _halves(rows: NDArray[np.float32], heads: int | None) -> NDArray[np.float32]:
    """The inverse of `_interleaved`."""
    if heads is None:
        return rows
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def _numpy_dtype(kind: GGMLQuantizationType) -> Any:
    import numpy as np

    return np.dtype({"F32": np.float32, "F16": np.float16}.get(kind.name, np.uint8))


def _digest(data: NDArray[Any]) -> str:
    return hashlib.blake2b(data.tobytes(), digest_size=16).hexdigest()
