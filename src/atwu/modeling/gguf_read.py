"""Read GGUF files: transformers dequantizes their weights, which are written as a float32 model folder.

`named_models.py` keeps these folders in the cache; `gguf_write.py` writes GGUF files.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from atwu._files import atomic_sibling, explain_full_disk, move, write_json
from atwu._manifest import write_manifest
from atwu.errors import ModelFileError
from atwu.modeling.model_checks import check_complete
from atwu.modeling.model_files import explain_damage

logger = logging.getLogger(__name__)

SOURCE_NAME = "source.json"
"""File in a converted folder that records its source."""


def convert_gguf(path: Path, folder: Path, *, source: str) -> None:
    """Write the model and tokenizer of a GGUF file as float32 safetensors; the folder is created atomically."""
    import torch
    from transformers import AutoModelForCausalLM

    logger.warning("converting %s to safetensors in %s (once, about a minute)", path.name, folder)
    _check_blocks(path)
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with explain_damage(path.parent, path.name):
        loaded: Any = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, output_loading_info=True)
        read, report = loaded
        tokenizer = gguf_tokenizer(path, size=read.config.vocab_size)
    check_complete(report, str(path))
    config, generation = read.config, read.generation_config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are float32 now, but transformers would refuse to save them
    weights = read.state_dict()
    with torch.device("meta"):
        model = type(read)(config)
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


def _check_blocks(path: Path) -> None:
    """Check that a GGUF file has the layers that it gives, and ends where its tensors do.

    transformers would create 10^9 layers, or load a part of the file.
    """
    import gguf

    with explain_damage(path.parent, path.name):
        reader = gguf.GGUFReader(path)
        given = next((field.contents() for name, field in reader.fields.items() if name.endswith(".block_count")), None)
        found = {name.split(".")[1] for tensor in reader.tensors if (name := str(tensor.name)).startswith("blk.")}
        end = max((int(tensor.data_offset + tensor.n_bytes) for tensor in reader.tensors), default=0)
        size, alignment = path.stat().st_size, reader.alignment
    if found != {str(layer) for layer in range(len(found))} or given != len(found):
        raise ModelFileError(
            f"{path} gives {given} layers (block_count), but has tensors of the layers {', '.join(sorted(found)) or 'none'}; "
            "download it again."
        )
    if size - end >= alignment:
        raise ModelFileError(
            f"{path} has {size - end} bytes after its last tensor, so tensors are missing; download it again."
        )
