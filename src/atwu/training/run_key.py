"""Key of a run: a run resumes automatically only from a checkpoint with the same key."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

from atwu._files import versions
from atwu.training.config import TokenTrainingConfig
from atwu.training.load_to_train import LoadedModel
from atwu.training.training_rows import RowSet

KEY_NAME = "run_key.json"
NOT_RESULT = frozenset(
    [
        *("output_dir", "run_name", "resume_from_checkpoint", "local_rank"),
        *("disable_tqdm", "report_to", "log_level", "logging_steps", "logging_strategy", "logging_first_step"),
        *("save_strategy", "save_steps", "save_total_limit"),
        *("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision"),
        *("dataloader_num_workers", "dataloader_pin_memory"),
        *("dataloader_persistent_workers", "dataloader_prefetch_factor"),
        # Options with paths; the contents at these paths are compared by digest instead.
        *("cache_dir", "forget_words", "extra_forget", "scorer_from", "auxiliary_forget", "auxiliary_retain"),
    ]
)
"""Fields that do not affect the result, so a run may be resumed with other values."""
_PARTS_OF_A_STEP = frozenset(["per_device_train_batch_size", "gradient_accumulation_steps"])
"""With the number of processes these give the rows per step, which is compared; their split only affects
floating-point rounding."""


def packages(config: TokenTrainingConfig, loaded: LoadedModel) -> dict[str, str]:
    """Return the versions of the packages that affect a run's numbers."""
    further = ["peft"] * (loaded.lora is not None) + ["bitsandbytes"] * bool(config.quantize)
    return versions() | {name: importlib.metadata.version(name) for name in further}


def run_key(
    command: str,
    config: TokenTrainingConfig,
    loaded: LoadedModel,
    sets: Mapping[str, RowSet],
    *,
    tokenizer: Any,
    inputs: Mapping[str, str],
) -> dict[str, Any]:
    """Return the key of a run, as plain JSON; `inputs` are digests of what it reads besides model and rows."""
    plain = None if tokenizer is None else f"{tokenizer.backend_tokenizer.to_str()}{tokenizer.chat_template or ''}"
    key = {
        "command": command,
        "model": loaded.fingerprint,
        "tokenizer": None if plain is None else hashlib.sha256(plain.encode()).hexdigest(),
        "data": {name: each.fingerprint for name, each in sets.items()},
        "inputs": inputs,
        "config": {
            name: value for name, value in config.as_plain().items() if name not in NOT_RESULT | _PARTS_OF_A_STEP
        },
        "rows_per_step": config.rows_per_step,
        "device": config.device.type,
        "versions": packages(config, loaded),
    }
    plain_key: dict[str, Any] = json.loads(json.dumps(key, default=str))
    return plain_key


def key_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """List the entries that differ between two keys, one level deep."""
    names = []
    for name in sorted(set(old) | set(new)):
        before, after = old.get(name), new.get(name)
        if before != after:
            if isinstance(before, dict) and isinstance(after, dict):
                names += [f"{name}.{key}" for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
            else:
                names.append(name)
    return ", ".join(names[:6]) or "its settings"
