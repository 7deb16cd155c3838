"""The model that a run starts from: its name or shape checked beforehand, its tokenizer, then its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from atwu.modeling.adapters import adapters_of, unmergeable
from atwu.modeling.load import (
    DTYPES,
    check_model_name,
    check_vocabulary,
    is_adapter,
    load_config,
    load_model,
    load_tokenizer,
    weight_bytes,
)
from atwu.modeling.scratch import scratch_config, scratch_model, scratch_shape
from atwu.training.config import TokenTrainingConfig
from atwu.training.lora import check_lora
from atwu.training.output import OutputFolder

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from: a folder or Hub name, or a shape to build from nothing."""

    model: str | None = None
    scratch: str | None = None
    """Shape name for a new, randomly initialised model."""
    tokenizer: str | None = None
    """Folder of a tokenizer for a scratch model; without it one is trained on the data."""
    dtype: str = "auto"
    trust_remote_code: bool = False
    revision: str | None = None
    base: str | None = None
    """Base model of an adapter folder, instead of the one it names."""

    def __post_init__(self) -> None:
        if (self.model is None) == (self.scratch is None):
            raise ValueError("name either a model to start from or a shape to build, not both and not neither.")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}.")
        if self.model is not None:
            check_model_name(self.model, base=self.base)
        else:
            scratch_shape(str(self.scratch))
            if self.base is not None:
                raise ValueError(f"a base model ({self.base!r}) goes with an adapter folder, not with a new model.")

    def architecture(self) -> Any:
        """The model's configuration, as transformers has it."""
        if self.model is None:
            return scratch_config(str(self.scratch))
        return load_config(self.model, trust_remote_code=self.trust_remote_code, revision=self.revision, base=self.base)


def check_training(source: ModelSource, config: TokenTrainingConfig) -> int:
    """Whether this model can be trained as configured, as far as can be told without its weights.

    Returns:
        Bytes of a saved adapter, 0 for a run on all weights.

    Raises:
        ValueError, ImportError: see the message.
    """
    if source.dtype == "float16" and not config.lora_r:
        raise ValueError("float16 weights cannot be trained; use --dtype float32 --fp16, or bfloat16.")
    named = source.model is not None and not is_adapter(source.model)
    return check_lora(
        config,
        source.architecture() if config.lora_r else None,
        named=named,
        trust_remote_code=source.trust_remote_code,
    )


def checked_tokenizer(
    source: ModelSource, folder: OutputFolder, config: TokenTrainingConfig, *, adapter_bytes: int
) -> Any:
    """The tokenizer, checked against the model's vocabulary; also checks disk space where the size is known."""
    if source.model is None:
        tokenizer = load_tokenizer(str(source.tokenizer))
        check_vocabulary(tokenizer, source.architecture(), name=str(source.tokenizer))
        return tokenizer
    tokenizer = load_tokenizer(
        source.model, trust_remote_code=source.trust_remote_code, revision=source.revision, base=source.base
    )
    check_vocabulary(tokenizer, source.architecture(), name=source.model)
    if size := weight_bytes(source.model, base=source.base):
        folder.check_space(space_needed(size, config, adapter_bytes))
    return tokenizer


def space_needed(model_bytes: int, config: TokenTrainingConfig, adapter_bytes: int) -> int:
    """Bytes of the result, and of a checkpoint (what is trained, two optimizer moments) and its successor being written."""
    trained = adapter_bytes or model_bytes
    result = adapter_bytes if config.save_adapter else model_bytes
    return result if config.save_strategy == "no" else result + 6 * trained


def load_source(source: ModelSource, config: TokenTrainingConfig, say: Say) -> Any:
    """The model in its starting state, without new adapters; warns of precision that gets lost.

    Raises:
        ValueError: weights that cannot be trained.
    """
    if source.model is None:
        return scratch_model(str(source.scratch), seed=config.seed)
    model = load_model(
        source.model,
        dtype=source.dtype,
        trust_remote_code=source.trust_remote_code,
        revision=source.revision,
        base=source.base,
        quantize=config.quantize,
    )
    if (adapted := adapters_of(model)) is not None:
        raise ValueError(
            f"the adapter {source.model} cannot be merged into its base model ({unmergeable(adapted)}), so there is no "
            "whole model to start from."
        )
    dtype = next(model.parameters()).dtype
    if config.lora_r:
        if dtype == torch.float16 and not config.fp16:
            say("warning: small gradients vanish in float16; --fp16 scales them")
        if dtype in (torch.float16, torch.bfloat16) and not config.save_adapter:
            say(
                f"warning: merging rounds the adapters to the model's {str(dtype).partition('.')[2]}; --save-adapter "
                "keeps them as they are, --dtype float32 the whole model"
            )
    elif dtype == torch.float16:
        raise ValueError(f"{source.model} has float16 weights, which cannot be trained; add --dtype float32.")
    elif dtype == torch.bfloat16 and config.learning_rate < 1e-4:
        say(
            f"warning: bfloat16 weights round away many updates at learning rate {config.learning_rate:g}; "
            "--dtype float32 --bf16 keeps them"
        )
    return model
