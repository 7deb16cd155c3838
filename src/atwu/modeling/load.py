"""Loading models and tokenizers: safetensors only, no remote code unless asked for, errors before anything is read."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

import torch

DTYPES = ("auto", "float32", "bfloat16", "float16")


def quiet_transformers() -> None:
    """Keep transformers' own progress bars and informational output off the terminal."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def check_model_name(name: str) -> None:
    """Check that a local model folder is complete; anything that cannot be a folder is taken for a Hub name.

    Raises:
        FileNotFoundError: a path that does not exist, or a folder without a config or safetensors weights.
    """
    path = Path(name)
    # Anything whose parent is a folder here is meant to be one here; the rest may be a Hub name.
    parent_is_here = path.parent != Path() and path.parent.is_dir()
    if not (path.is_absolute() or name.startswith((".", "~")) or path.exists() or parent_is_here):
        return
    if not path.is_dir():
        around = os.listdir(path.parent) if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, around, n=1)
        hint = f" Did you mean {path.parent / close[0]}?" if close else ""
        raise FileNotFoundError(f"model {name!r} not found: no such folder, so it cannot be loaded.{hint}")
    if (path / "adapter_config.json").is_file():
        raise FileNotFoundError(f"{name} holds a PEFT adapter, not a model; merge it into its base model first.")
    if not (path / "config.json").is_file():
        unfinished = " It is the work folder of an unfinished run." if name.endswith(".incomplete") else ""
        raise FileNotFoundError(f"{name} holds no model: config.json is missing.{unfinished}")
    if not list(path.glob("*.safetensors")):
        raise FileNotFoundError(
            f"{name} holds no .safetensors weights; other formats are not loaded because they can run code."
        )


def load_tokenizer(name: str, *, trust_remote_code: bool = False, revision: str | None = None) -> Any:
    """Load a tokenizer by folder or Hub name."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code, revision=revision)


def load_model(name: str, *, dtype: str = "auto", trust_remote_code: bool = False, revision: str | None = None) -> Any:
    """Load a causal language model on the CPU.

    Args:
        name: folder or Hub name.
        dtype: one of `DTYPES`; `auto` keeps the checkpoint's own.
        trust_remote_code: run model code that comes with the checkpoint.
        revision: branch, tag or commit of a Hub model.
    """
    from transformers import AutoModelForCausalLM

    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}.")
    check_model_name(name)
    return AutoModelForCausalLM.from_pretrained(
        name,
        dtype=dtype if dtype == "auto" else getattr(torch, dtype),
        trust_remote_code=trust_remote_code,
        revision=revision,
        use_safetensors=True,
    )


def check_vocabulary(tokenizer: Any, config: Any, *, name: str) -> None:
    """Refuse a tokenizer that can produce ids the model has no embedding for.

    Raises:
        ValueError: the tokenizer's largest id is outside the model's vocabulary.
    """
    largest = max(tokenizer.get_vocab().values())
    size = int(config.get_text_config().vocab_size)
    if largest >= size:
        raise ValueError(
            f"tokenizer and model of {name!r} do not belong together: the tokenizer has token ids up to {largest}, "
            f"the model only {size} embeddings. Point at a folder where both were saved."
        )


def weight_bytes(name: str) -> int | None:
    """Size of a local model's weight files in bytes, or None for a Hub name."""
    path = Path(name)
    return sum(file.stat().st_size for file in path.glob("*.safetensors")) if path.is_dir() else None
