"""Read GGUF files: transformers dequantizes their weights, which are written as a float32 model folder.

`named_models.py` keeps these folders in the cache; `gguf_write.py` writes GGUF files.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._files import atomic_sibling, explain_full_disk, move, write_json
from atwu._manifest import write_manifest
from atwu.errors import ModelFileError
from atwu.modeling.model_checks import check_complete, check_finite
from atwu.modeling.model_files import SOURCE_NAME, explain_damage

if TYPE_CHECKING:
    from gguf import GGUFReader
    from torch import Tensor

logger = logging.getLogger(__name__)

_ROPE_FACTORS = "rope_freqs.weight"
"""Tensor with divisors of the rotary frequencies."""
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Rotary settings of Llama 3.1 to 3.3, which differ in their factor only."""


def convert_gguf(path: Path, folder: Path, *, source: str) -> None:
    """Write the model and tokenizer of a GGUF file as float32 safetensors; the folder is created atomically."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM

    logger.warning("converting %s to safetensors in %s (once, about half a minute)", path.name, folder)
    with explain_damage(path.parent, path.name):
        reader = GGUFReader(path)
    _check_header(reader, path)
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with _names_listed_once():
        with explain_damage(path.parent, path.name):
            loaded: Any = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, output_loading_info=True)
            quantized, report = loaded
            tokenizer = gguf_tokenizer(path, size=quantized.config.vocab_size)
        check_complete(report, str(path))
        _check_all_read(reader, path, quantized)
    check_finite(quantized, str(path))
    config, generation = quantized.config, quantized.generation_config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are float32 now, but transformers would refuse to save them
    weights = quantized.state_dict()
    with torch.device("meta"):
        model = type(quantized)(config)
    model.load_state_dict(weights, strict=True, assign=True)
    model.tie_weights()
    model.generation_config = generation
    folder.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(folder), atomic_sibling(folder) as staging:
        model.save_pretrained(staging)
        tokenizer.save_pretrained(staging)
        write_json(staging / SOURCE_NAME, {"source": source})
        write_manifest(staging)
        move(staging, folder)


def gguf_tokenizer(path: Path, *, size: int) -> Any:
    """Load the tokenizer of a GGUF file.

    Corrects what transformers misreads: it appends an extra `<|endoftext|>`, and ignores `add_space_prefix`.
    """
    from gguf import GGUFReader
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    rules["added_tokens"] = [added for added in rules["added_tokens"] if added["id"] < size]
    prefix = GGUFReader(path).get_field("tokenizer.ggml.add_space_prefix")
    if prefix is not None and not prefix.contents() and (rules["pre_tokenizer"] or {}).get("type") == "Metaspace":
        rules["pre_tokenizer"]["prepend_scheme"] = "never"
        rules["decoder"]["decoders"] = [step for step in rules["decoder"]["decoders"] if step["type"] != "Strip"]
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(rules))
    return tokenizer


@contextmanager
def _names_listed_once() -> Iterator[None]:
    """Let transformers list the names of an architecture's tensors once, instead of once for each of hundreds of modules."""
    import gguf

    listed = gguf.get_tensor_name_map
    gguf.get_tensor_name_map = functools.cache(listed)
    try:
        yield
    finally:
        gguf.get_tensor_name_map = listed


def _check_header(reader: GGUFReader, path: Path) -> None:
    """Check settings that transformers would replace by defaults or does not read, and that all layers are in the file.

    Of a file with other numbers of layers, transformers would create 10^9 layers, or load a part.
    """
    with explain_damage(path.parent, path.name):
        named = {name.partition(".")[2]: field.contents() for name, field in reader.fields.items()}
        kinds = {name.split(".")[1] for tensor in reader.tensors if (name := str(tensor.name)).startswith("blk.")}
        end = max((int(tensor.data_offset + tensor.n_bytes) for tensor in reader.tensors), default=0)
        size, alignment = path.stat().st_size, reader.alignment
    if kinds != {str(layer) for layer in range(len(kinds))} or named.get("block_count") != len(kinds):
        raise ModelFileError(
            f"{path} gives {named.get('block_count')} layers (block_count), but has tensors of the layers "
            f"{', '.join(sorted(kinds)) or 'none'}; download it again."
        )
    if size - end >= alignment:
        raise ModelFileError(
            f"{path} has {size - end} bytes after its last tensor, so tensors are missing; download it again."
        )
    named.setdefault("attention.layer_norm_rms_epsilon", named.get("attention.layer_norm_epsilon"))
    for name in ("embedding_length", "attention.head_count", "attention.layer_norm_rms_epsilon"):
        if named.get(name) is None:
            raise ModelFileError(f"{path} gives no {name}; download it again.")
    scaling = named.get("rope.scaling.type", "none")
    if scaling != "none" and named.get("architecture") != "gpt-oss":
        raise ModelFileError(
            f"{path} has rotary positions scaled by {scaling} (rope.scaling.type), which transformers does not read from GGUF; "
            "use the model's safetensors."
        )


def _check_all_read(reader: GGUFReader, path: Path, model: Any) -> None:
    """Check that every tensor was read, and give the model the rotary frequencies of Llama 3.

    transformers leaves out tensors that it does not know, and takes the embeddings for a missing `output.weight`.
    """
    import torch
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    with explain_damage(path.parent, path.name):
        kind = reader.fields["general.architecture"].contents()
        known = get_gguf_hf_weights_map(model, TENSOR_PROCESSORS.get(kind, TensorProcessor)(model.config.to_dict()))
    # Experts are known by names without suffix.
    left = {
        name: torch.tensor(tensor.data)
        for tensor in reader.tensors
        if (name := str(tensor.name)) not in known and name.removesuffix(".weight") not in known
    }
    if (factors := left.get(_ROPE_FACTORS)) is not None and (rope := _scaled_rope(model.config, factors)) is not None:
        model.config.rope_parameters = rope
        del left[_ROPE_FACTORS]
    if left:
        raise ModelFileError(
            f"{path} has tensors in no layer of the model that transformers reads: {', '.join(sorted(left)[:3])}"
            f"{', ...' if len(left) > 3 else ''}. Download it again, or use the model's safetensors."
        )


def _scaled_rope(config: Any, factors: Tensor) -> dict[str, Any] | None:
    """Return the rotary settings of Llama 3.1 to 3.3 if they divide the frequencies by these factors, otherwise None."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if config.model_type != "llama":
        return None
    rope = {**config.rope_parameters, **_LLAMA3_ROPE, "factor": float(factors.max())}
    copied = copy.deepcopy(config)

    def frequencies(factor: float) -> Tensor:
        copied.rope_parameters = {**rope, "factor": factor}
        frequencies: Tensor = ROPE_INIT_FUNCTIONS["llama3"](copied)[0]
        return frequencies

    expected = frequencies(1.0) / frequencies(rope["factor"])
    if expected.shape == factors.shape and bool((expected / factors - 1).abs().max() < 1e-4):
        return rope
    return None
