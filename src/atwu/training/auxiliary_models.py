"""The two auxiliary models of SU-LLM: one fine-tuned on the forget set, one on the retain set (Wan et al. 2025).

Both are fine-tuned from the model to unlearn, and cached by model, data and configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atwu._cache import cache_folder, short_hash, writable_folder
from atwu._files import versions
from atwu._manifest import is_intact
from atwu.benchmarks.sources import LoadedRows
from atwu.modeling.chat_template import template_text
from atwu.modeling.fingerprint import model_fingerprint, stored_weights_fingerprint
from atwu.modeling.load import is_adapter, load_model
from atwu.training.config import FinetuneConfig, UnlearnConfig
from atwu.training.finetune import run_finetune
from atwu.training.load_to_train import ModelSource
from atwu.training.progress import Say
from atwu.training.training_rows import RowSet

EPOCHS = 5
_ADAPTERS = ("lora_r", "lora_alpha", "lora_targets", "lora_dropout")


def auxiliary_models(
    source: ModelSource,
    config: UnlearnConfig,
    rows: Mapping[str, RowSet],
    *,
    say: Say,
) -> dict[str, str]:
    """Return folders for the options `auxiliary_forget` and `auxiliary_retain`, training the models that are not given.

    They are fine-tuned from the model to unlearn, on its forget and retain rows.
    """
    folders: dict[str, str] = {}
    missing = [name for name in ("forget", "retain") if config.component_options.get(f"auxiliary_{name}") is None]
    if not missing:
        return folders
    if config.quantize is not None:
        raise ValueError(
            f"quantize={config.quantize!r} does not work with auxiliary models, whose full weights are trained; "
            "leave it out, or train them with atwu finetune and set auxiliary_forget and auxiliary_retain."
        )
    start = str(source.model)
    adapted = is_adapter(start)  # an adapter folder does not contain the base model
    starting = (
        model_fingerprint(load_model(start, **source.load_kwargs))
        if adapted
        else stored_weights_fingerprint(start, source.revision)
    )
    adapters = {name: getattr(config, name) for name in _ADAPTERS} if config.lora_r else {}
    for name in missing:
        settings: dict[str, Any] = {
            "learning_rate": config.learning_rate,
            "num_train_epochs": EPOCHS,
            "per_device_train_batch_size": config.per_device_train_batch_size,
            "seed": config.seed,
            "max_length": config.max_length,
            "system": config.system,
        } | adapters
        precision = [source.dtype, config.bf16, config.fp16, config.device.type]
        template = [template_text(source.chat_template)] if source.chat_template else []
        template += [source.chat_template_kwargs] if source.chat_template_kwargs else []
        several = [config.world_size] * (config.world_size > 1)  # the number of processes changes the batches
        key = short_hash([starting, rows[name].fingerprint, settings, precision, versions(), *several, *template])
        folder = (Path(config.cache_dir) if config.cache_dir else cache_folder()) / "auxiliary" / f"{name}-{key[:16]}"
        if is_intact(folder):
            say(f"auxiliary model of the {name} set: found in {folder}")
        else:
            folder = writable_folder(folder)
            say(f"auxiliary model of the {name} set: training once in {folder}")
            folder.parent.mkdir(parents=True, exist_ok=True)
            finetune = FinetuneConfig(
                **settings,
                save_strategy="no",
                disable_tqdm=config.disable_tqdm,
                use_cpu=config.use_cpu,
                bf16=config.bf16,
                fp16=config.fp16,
                fsdp=config.fsdp,
                fsdp_config=config.fsdp_config,
            )
            given = LoadedRows(rows[name].examples or (), str(rows[name].source), ())
            run_finetune(source, finetune, data=given, output=folder, say=say)
        folders[f"auxiliary_{name}"] = str(folder)
    return folders
