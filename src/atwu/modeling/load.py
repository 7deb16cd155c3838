"""Load models and tokenizers: safetensors only, remote code only on request; and fingerprints that identify weights.

Damaged files are rejected before a library reads them (`model_files.py`), and damaged models once they are loaded
(`model_checks.py`). A name is a folder, a Hub name, a short name or a GGUF file (`named_models.py`). A folder with a LoRA
adapter loads like a model; its base model is the one recorded in the adapter config.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from atwu._cache import tensor_digest
from atwu._extras import require
from atwu._file_reading import read_object
from atwu._files import file_digest
from atwu._manifest import check_as_written
from atwu._names import did_you_mean
from atwu.errors import ModelFileError, UsageError
from atwu.modeling.adapters import merge_adapters, quiet_peft, unmergeable
from atwu.modeling.device import multiplies_bfloat16
from atwu.modeling.layers import unwrap
from atwu.modeling.model_checks import (
    check_class,
    check_complete,
    check_finite,
    check_generation,
    check_spaces,
    warn_of_epsilon,
    warn_of_tying,
)
from atwu.modeling.model_files import CONFIG, GENERATION_CONFIG, TOKENIZER, check_files, explain_damage, read_tensors
from atwu.modeling.named_models import SHORT_NAME, SMOLLM2, model_source
from atwu.modeling.quantization import check_quantization, compute_as_stored, quantization_config, quiet_bitsandbytes
from atwu.modeling.tokenizer_file import follow_file, set_chat_template

DTYPES = ("auto", "float32", "bfloat16", "float16")

_UNSAFE_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Suffixes of weights that PyTorch saves as pickles."""
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def quiet_transformers() -> None:
    """Disable progress bars and informational output of transformers."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def check_model_name(name: str, *, base: str | None = None, revision: str | None = None, weights: bool = True) -> None:
    """Check that a local model or adapter folder is complete; a name that cannot be a path is treated as a Hub name.

    Short names and GGUF files are converted into the cache here.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"model must be text: a folder, a Hub name, smollm2 or a .gguf file; got {type(name).__name__}. A model object is "
            "for atwu.UnlearnTrainer."
        )
    if not name:
        raise ValueError("the name of the model is empty; give a folder, a Hub name, smollm2 or a .gguf file.")
    # A finished folder of this package has a manifest, and is used only as it was written.
    check_as_written(Path(os.path.expanduser(name)))
    # First: the folder of an adapter has no config.json of its own.
    if is_adapter(name):
        _check_adapter(name)
        _check_base(name, base, revision)
        return
    if base is not None:
        raise UsageError(f"base={base!r} requires an adapter folder, but {name!r} is not one; leave out base.")
    if revision is not None and (name == SHORT_NAME or _is_path(name)):
        what = f"a short name; use {SMOLLM2}"
        if _is_path(name):  # a folder of this name comes first, as in `model_source`
            what = "on this machine; leave out revision"
        raise UsageError(f"revision={revision!r} requires the Hub name of a model, but {name!r} is {what}.")
    name = model_source(name)
    path = Path(name)
    if not _is_path(name):
        return
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"model {name!r} is a file; give the folder of a model, or a .gguf file.")
    if not path.is_dir():
        siblings = os.listdir(path.parent) if path.parent.is_dir() else []
        hint = did_you_mean(path.name, siblings, shown=lambda close: str(path.parent / close))
        raise FileNotFoundError(f"model {name!r} not found: there is no such folder.{hint}")
    if not (path / CONFIG).is_file():
        unfinished = ""
        if name.endswith(".incomplete"):
            unfinished = " It is the work folder of an unfinished run."
        raise FileNotFoundError(f"{name} contains no model: {CONFIG} is missing.{unfinished}")
    check_files(path)
    if weights and not list(path.glob("*.safetensors")):
        others = sorted(file.name for file in path.iterdir() if file.suffix in _UNSAFE_WEIGHTS)
        reason = "copy or download the model again."
        if others:
            reason = f"{others[0]} is not loaded, since such files can run code."
        raise FileNotFoundError(f"{name} contains no .safetensors weights; {reason}")
    if stored_bits(name) is not None:
        require("bitsandbytes", extra="quantize")
        quiet_bitsandbytes()


def stored_bits(name: str) -> str | None:
    """Return `4bit` or `8bit` for a model folder with weights quantized by bitsandbytes, otherwise None."""
    path = Path(os.path.expanduser(name)) / CONFIG
    if not path.is_file():
        return None
    settings = read_object(path).get("quantization_config")
    if settings is not None and not isinstance(settings, dict):
        raise ModelFileError(f"{path}: quantization_config must be an object, got {settings!r:.40}; restore the file.")
    if not settings or settings.get("quant_method") != "bitsandbytes":
        return None
    if settings.get("load_in_8bit"):
        return "8bit"
    return "4bit"


def is_adapter(name: str) -> bool:
    return (Path(os.path.expanduser(name)) / ADAPTER_CONFIG).is_file()


def base_of(name: str, *, base: str | None = None) -> str:
    """Return the folder or Hub name to load for a name; for an adapter folder, that of its base model."""
    if not is_adapter(name):
        return model_source(name)
    if base is not None:
        return model_source(base)
    recorded = _adapter_settings(name).get("base_model_name_or_path")
    if not isinstance(recorded, str) or not recorded:
        raise ValueError(
            f"adapter {name} does not record its base model (base_model_name_or_path in {ADAPTER_CONFIG}); set it with base= "
            "(--base)."
        )
    if _is_path(recorded) and not Path(recorded).is_absolute():
        raise ValueError(
            f"adapter {name} records its base model as the relative path {recorded!r}, whose start is unknown; "
            "set the base model with base= (--base)."
        )
    return model_source(recorded)


def load_tokenizer(
    name: str,
    *,
    trust_remote_code: bool = False,
    revision: str | None = None,
    base: str | None = None,
    chat_template: str | None = None,
    chat_template_kwargs: str | None = None,
) -> Any:
    """Load a tokenizer by folder or Hub name; for an adapter folder, its own or otherwise that of the base model.

    Args:
        chat_template: Jinja file with a template instead of its own.
        chat_template_kwargs: arguments of the template, a JSON object.
    """
    from transformers import AutoTokenizer

    if is_adapter(name) and not (Path(os.path.expanduser(name)) / "tokenizer_config.json").is_file():
        revision = base_revision(name, revision, base)
        name = base_of(name, base=base)
    source = model_source(name)
    check_files(source)
    with explain_damage(source, TOKENIZER):
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code, revision=revision)
        tokenizer = follow_file(tokenizer, source, revision=revision)
        check_spaces(tokenizer, source)
    set_chat_template(tokenizer, chat_template, chat_template_kwargs)
    return tokenizer


def load_config(
    name: str, *, trust_remote_code: bool = False, revision: str | None = None, base: str | None = None
) -> Any:
    """Load the configuration of a model, or of an adapter's base model."""
    from transformers import AutoConfig

    source, revision = base_of(name, base=base), base_revision(name, revision, base)
    check_files(source)
    with explain_damage(source, CONFIG):
        return AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code, revision=revision)


def model_class(config: Any) -> Any:
    """Return the class of transformers that loads a model: for causal language models, or for language models in a wrapper
    that also reads images, which are used without any.

    Raises:
        ValueError: the model is neither.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING or hasattr(config, "auto_map"):
        return AutoModelForCausalLM
    if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return AutoModelForImageTextToText
    raise ValueError(
        f"models of type {config.model_type} (model_type in {CONFIG}) do not continue a text; give a causal language model, or "
        "one that answers questions about images."
    )


def load_model(
    name: str,
    *,
    dtype: str = "auto",
    trust_remote_code: bool = False,
    revision: str | None = None,
    base: str | None = None,
    merge: bool = True,
    quantize: str | None = None,
) -> Any:
    """Load a causal language model, on the CPU unless it is quantized.

    Args:
        name: folder or Hub name of a model, or folder of a LoRA adapter.
        dtype: one of `DTYPES`; `auto` keeps the checkpoint's own.
        trust_remote_code: run model code that comes with the checkpoint.
        revision: branch, tag or commit of a Hub model (of the base model, for an adapter).
        base: base model of an adapter folder, instead of the recorded one.
        merge: merge an adapter into the weights if that preserves the model (see `unmergeable`), which makes it as fast as
            a plain model; otherwise the adapter stays separate and frozen.
        quantize: `4bit` (NF4, Dettmers et al. 2023) or `8bit` (LLM.int8, Dettmers et al. 2022) weights, on the current
            CUDA device.

    Raises:
        ValueError, FileNotFoundError, ImportError: see the message; no weights were loaded, unless an adapter turns out
            not to fit its base model.
    """
    from transformers import GenerationConfig

    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}.")
    check_model_name(name, base=base)
    weights: dict[str, Any] = {}
    if quantize is not None:
        weights = _quantized(quantize, dtype)
    adapter = is_adapter(name)
    if adapter:
        require("peft", extra="lora")
    source = base_of(name, base=base)
    if (Path(source) / GENERATION_CONFIG).is_file():
        # Read once more with the model, where an error would not name this file.
        with explain_damage(source, GENERATION_CONFIG):
            GenerationConfig.from_pretrained(source)
    config = load_config(name, trust_remote_code=trust_remote_code, revision=revision, base=base)
    weights["dtype"] = dtype
    if dtype != "auto":
        weights["dtype"] = getattr(torch, dtype)
    with explain_damage(source, CONFIG):
        loaded: Any = model_class(config).from_pretrained(
            source,
            trust_remote_code=trust_remote_code,
            revision=base_revision(name, revision, base),
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # for a report with their names; `check_complete` rejects them
            **weights,
        )
    model, report = loaded
    check_class(model, source)
    check_complete(report, source)
    check_finite(model, source)
    check_generation(model, source)
    warn_of_epsilon(model, source)
    warn_of_tying(model, source)
    compute_as_stored(model)
    if adapter:
        return add_adapter(model, name, merge=merge)
    return model


def add_adapter(model: Any, name: str, *, merge: bool = True) -> Any:
    """Attach the adapter of a folder to its base model, frozen, and merge it if that preserves the model."""
    peft, name = require("peft", extra="lora"), os.path.expanduser(name)
    _check_rank(Path(name))
    with (
        quiet_peft(),
        torch.random.fork_rng(devices=[]),
    ):  # peft first makes random adapters, then reads those of the file
        with explain_damage(name, ADAPTER_CONFIG):
            config = peft.LoraConfig.from_pretrained(name)
            config.inference_mode = True
            adapted = peft.PeftModelForCausalLM(model, config)
        try:
            report = adapted.load_adapter(name, "default", torch_device=str(model.device))
        except (ValueError, RuntimeError) as error:
            raise ModelFileError(
                f"adapter {name} does not fit {model.name_or_path} (r in {ADAPTER_CONFIG}, shapes in {ADAPTER_WEIGHTS}): "
                f"{error}"
            ) from error
        except KeyError as error:  # weights of modules_to_save or trainable tokens
            raise ModelFileError(
                f"adapter {name} does not fit {model.name_or_path}: {ADAPTER_WEIGHTS} lacks {error.args[0]}; restore it, or "
                f"correct {ADAPTER_CONFIG}."
            ) from error
    for what, keys in (("lacks", report.missing_keys), ("has layers the model lacks, such as", report.unexpected_keys)):
        if keys:
            raise ModelFileError(
                f"adapter {name} does not fit {model.name_or_path}: {ADAPTER_WEIGHTS} {what} {keys[0]}; restore it, or correct "
                f"target_modules in {ADAPTER_CONFIG}."
            )
    if merge and unmergeable(adapted) is None:
        return merge_adapters(adapted)
    return adapted


def check_vocabulary(tokenizer: Any, config: Any, *, name: str) -> None:
    """Check that the model has an embedding for every id of the tokenizer."""
    largest = max(tokenizer.get_vocab().values())
    size = int(config.get_text_config().vocab_size)
    if largest >= size:
        raise ValueError(
            f"tokenizer and model of {name!r} do not match: the tokenizer (tokenizer.json, tokenizer_config.json) has token "
            f"ids up to {largest}, the model only {size} embeddings (vocab_size in config.json); use a folder in which both "
            "were saved."
        )


def check_objects(model: Any, tokenizer: Any) -> None:
    """Check a model and a tokenizer that were given as objects, as `check_vocabulary` does those of a folder."""
    own = unwrap(model)
    config = getattr(own, "config", None)
    if tokenizer is not None and hasattr(config, "get_text_config"):
        check_vocabulary(tokenizer, config, name=getattr(own, "name_or_path", None) or type(own).__name__)


def weight_bytes(name: str, *, base: str | None = None) -> int | None:
    """Return the size in bytes of a local model's weight files, including base model and adapter; None for a Hub name."""
    size = _folder_bytes(base_of(name, base=base))
    if size is None or not is_adapter(name):
        return size
    return size + (_folder_bytes(name) or 0)


def _folder_bytes(name: str) -> int | None:
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        return sum(file.stat().st_size for file in path.glob("*.safetensors"))
    return None


def _is_path(name: str) -> bool:
    """Return whether a name looks like a local path; otherwise it may be a Hub name."""
    path = Path(name)
    # A typing error in the last part of a path must not be asked for on the Hub.
    parent_exists = path.parent != Path() and path.parent.is_dir()
    return path.is_absolute() or name.startswith((".", "~")) or path.exists() or parent_exists


def _adapter_settings(name: str) -> dict[str, Any]:
    return read_object(Path(os.path.expanduser(name)) / ADAPTER_CONFIG)


def _check_rank(folder: Path) -> None:
    """Check that a rank can be meant, before peft allocates matrices of this size."""
    rank = _adapter_settings(str(folder)).get("r")
    shapes = [value.shape for value in read_tensors(folder / ADAPTER_WEIGHTS).values()]
    largest = max((size for shape in shapes for size in shape), default=0)
    if isinstance(rank, int) and rank > largest:
        raise ModelFileError(
            f"{folder / ADAPTER_CONFIG}: the rank r is {rank}, more than any size in {ADAPTER_WEIGHTS}; restore the two files."
        )


def _check_adapter(name: str) -> None:
    settings = _adapter_settings(name)
    kind = settings.get("peft_type")
    if kind != "LORA":
        raise ValueError(
            f"{name} contains an adapter of type {kind} (peft_type in {ADAPTER_CONFIG}); only LoRA adapters (LORA) can be "
            "loaded."
        )
    for field in ("r", "lora_alpha"):
        if field not in settings:  # peft would use a default
            raise ModelFileError(f"{name}: {ADAPTER_CONFIG} gives no {field}; restore the file.")
    if not (Path(os.path.expanduser(name)) / ADAPTER_WEIGHTS).is_file():
        raise FileNotFoundError(
            f"{name} contains no {ADAPTER_WEIGHTS}; other formats are not loaded because they can run code."
        )


def _check_base(name: str, named_base: str | None, revision: str | None) -> None:
    try:
        base = base_of(name, base=named_base)
        if is_adapter(base):
            raise ValueError(
                f"the base model of adapter {name}, {base}, is an adapter itself; merge that adapter first."
            )
        check_model_name(base, revision=revision)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the base model of adapter {name} cannot be loaded: {error} If it was moved, set its path with base= "
            "(--base)."
        ) from error


def base_revision(name: str, revision: str | None, base: str | None) -> str | None:
    """Return the given revision, otherwise the one recorded by an adapter if its recorded base model is used."""
    if revision is not None or base is not None or not is_adapter(name):
        return revision
    recorded = _adapter_settings(name).get("revision")
    if isinstance(recorded, str):
        return recorded
    return None


def _quantized(quantize: str, dtype: str) -> dict[str, Any]:
    """Return the arguments with which transformers quantizes the weights while loading."""
    check_quantization(quantize, loading=True)
    if dtype != "auto":
        compute: torch.dtype = getattr(torch, dtype)
    elif multiplies_bfloat16(torch.device("cuda")):
        compute = torch.bfloat16
    else:
        compute = torch.float16
    # bitsandbytes quantizes a weight when it reaches the device.
    settings = quantization_config(quantize, compute)
    return {"quantization_config": settings, "device_map": {"": torch.cuda.current_device()}}


# Fingerprints


def stored_weights_fingerprint(name: str, revision: str | None = None) -> str:
    """Return a fingerprint of stored weights: a digest of the files of a folder, or name and commit on the Hub.

    For an adapter folder it does not include the base model.
    """
    from transformers.utils.hub import cached_file, extract_commit_hash

    source = model_source(name)
    files = sorted(Path(source).glob("*.safetensors"))
    if files:
        return file_digest(*files)
    # A commit on the Hub stands for its files, so that they need not be read.
    return f"{source}@{extract_commit_hash(cached_file(source, 'config.json', revision=revision), None)}"


def model_fingerprint(model: nn.Module) -> str:
    """Hash all parameters and buffers (name, dtype, shape and bytes) to 32 hexadecimal digits.

    Adapters are included with their scaling and whether they are enabled; so are the scales of quantized weights.
    """
    # A DTensor has a mesh; DeepSpeed leaves an empty tensor with an id.
    for parameter in model.parameters():
        if parameter.is_meta or hasattr(parameter, "device_mesh") or hasattr(parameter, "ds_id"):
            raise ValueError("cannot fingerprint weights that are sharded over processes or not loaded.")
    adapters = ""
    for name, module in model.named_modules():
        scaling = getattr(module, "scaling", None)  # set on layers of peft
        if isinstance(scaling, dict):
            off = bool(getattr(module, "disable_adapters", False))
            adapters += f"{name}|{sorted(scaling.items())}|{getattr(module, 'active_adapters', None)}|{off}"
    weights = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    return tensor_digest(weights, adapters.encode())
