"""The two auxiliary models of SU-LLM: one fine-tuned on the forget set, one on the retain set (Wan et al. 2025).

They start from the model that is about to unlearn, are trained once and cached by model, data and settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atwu._cache import cache_folder, place_for, short_hash
from atwu._files import versions
from atwu._manifest import is_kept
from atwu.benchmarks.sources import LoadedRows
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
    """Folders for the part options `auxiliary_forget` and `auxiliary_retain` where they are not given.

    They start from the model about to unlearn, on its forget and retain rows, each loaded from a source.
    """
    folders: dict[str, str] = {}
    missing = [name for name in ("forget", "retain") if config.component_options.get(f"auxiliary_{name}") is None]
    if not missing:
        return folders
    if config.quantize is not None:
        raise ValueError(
            f"quantize={config.quantize!r} does not go for auxiliary models, which are trained whole; leave it out, or train "
            "them with atwu finetune and give auxiliary_forget and auxiliary_retain."
        )
    start = str(source.model)
    adapted = is_adapter(start)  # whose files say nothing of its base model
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
        several = [config.world_size] * (config.world_size > 1)  # each takes a batch
        key = short_hash([starting, rows[name].fingerprint, settings, precision, versions(), *several])
        folder = (Path(config.cache_dir) if config.cache_dir else cache_folder()) / "auxiliary" / f"{name}-{key[:16]}"
        if is_kept(folder):
            say(f"auxiliary model of the {name} set: found in {folder}")
        else:
            folder = place_for(folder)
            say(f"auxiliary model of the {name} set: training, once, in {folder}")
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
