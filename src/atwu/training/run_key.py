"""What tells one run from another: only a run of the same key goes on from a checkpoint by itself."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from atwu._files import versions

if TYPE_CHECKING:
    from atwu.training.token_trainer import TokenTrainer

KEY_NAME = "run_key.json"
NOT_RESULT = frozenset(
    [
        *("output_dir", "run_name", "resume_from_checkpoint", "local_rank"),
        *("disable_tqdm", "report_to", "log_level", "logging_steps", "logging_strategy", "logging_first_step"),
        *("save_strategy", "save_steps", "save_total_limit"),
        *("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision"),
        *("dataloader_num_workers", "dataloader_pin_memory"),
        *("dataloader_persistent_workers", "dataloader_prefetch_factor"),
        # What lies there counts, by its digest.
        *("cache_dir", "forget_words", "scorer_from", "auxiliary_forget", "auxiliary_retain"),
    ]
)
"""Fields that cannot change the result, so a run may be resumed with other values."""
_PARTS_OF_A_STEP = frozenset(["per_device_train_batch_size", "gradient_accumulation_steps"])
"""These and the number of processes make the rows of a step, which count; how they are parted changes rounding alone."""


def packages(trainer: TokenTrainer) -> dict[str, str]:
    """Versions of the packages that decide a run's numbers."""
    further = ["peft"] * (trainer.loaded.lora is not None) + ["bitsandbytes"] * bool(trainer.args.quantize)
    return versions() | {name: importlib.metadata.version(name) for name in further}


def run_key(trainer: TokenTrainer) -> dict[str, Any]:
    """The key of a run, as plain JSON."""
    config, tokenizer = trainer.args, cast(Any, trainer.processing_class)
    plain = None if tokenizer is None else tokenizer.backend_tokenizer.to_str()
    key = {
        "command": trainer.command,
        "model": trainer.loaded.fingerprint,
        "tokenizer": None if plain is None else hashlib.sha256(plain.encode()).hexdigest(),
        "data": {name: each.fingerprint for name, each in trainer.sets.items()},
        "inputs": trainer.inputs(),
        "config": {
            name: value for name, value in config.as_plain().items() if name not in NOT_RESULT | _PARTS_OF_A_STEP
        },
        "rows_per_step": config.rows_per_step,
        "device": config.device.type,
        "versions": packages(trainer),
    }
    plain_key: dict[str, Any] = json.loads(json.dumps(key, default=str))
    return plain_key


def key_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Names of what differs between two keys, one level deep."""
    names = []
    for name in sorted(set(old) | set(new)):
        before, after = old.get(name), new.get(name)
        if before != after:
            if isinstance(before, dict) and isinstance(after, dict):
                names += [f"{name}.{key}" for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
            else:
                names.append(name)
    return ", ".join(names[:6]) or "its settings"
