"""Reject `TrainingArguments` that would otherwise be ignored silently."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import TrainingArguments

_NEVER = {
    "label_smoothing_factor": "the loss is defined by the method",
    "train_sampling_strategy": "the row order follows from seed and epoch",
    "torch_compile": "the forward pass that computes log-probabilities from the last hidden states cannot be compiled",
    "torch_compile_backend": "see torch_compile",
    "torch_compile_mode": "see torch_compile",
    "use_liger_kernel": (
        "log-probabilities are computed block by block from the last hidden states, without its fused loss"
    ),
    "liger_kernel_config": "see use_liger_kernel",
    "parallelism_config": "tensor and context parallelism are untested; fsdp shards over processes",
    "deepspeed": "it is untested; use fsdp to shard",
    "length_column_name": "see train_sampling_strategy",
    "average_tokens_across_devices": "losses are always divided by the token count of all processes",
    "load_best_model_at_end": (
        "the result is the model of the last step; save_strategy='best' with save_total_limit=1 keeps only the best "
        "checkpoint in output_dir, which loads by its path"
    ),
    "hub_strategy": "only the finished folder is pushed, once",
    "hub_always_push": "see hub_strategy",
    **dict.fromkeys(("do_train", "do_eval", "do_predict"), "call train or evaluate instead"),
    **dict.fromkeys(
        (
            *("label_names", "prediction_loss_only", "bf16_full_eval", "fp16_full_eval", "per_device_eval_batch_size"),
            *("eval_accumulation_steps", "eval_do_concat_batches", "eval_use_gather_object", "batch_eval_metrics"),
        ),
        "evaluation is configured as for atwu evaluate",
    ),
}
"""Unsupported options of transformers, with the reason."""
_SEVERAL = (
    *("ddp_backend", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_find_unused_parameters"),
    *("ddp_static_graph", "ddp_timeout"),
)
_STATE_DICTS = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")


def check_supported_args(config: TrainingArguments) -> None:
    """Reject options that this package or this machine does not support."""
    given = {
        name: getattr(config, name) != type(config).__dataclass_fields__[name].default for name in (*_NEVER, *_SEVERAL)
    }
    given["do_eval"] &= config.eval_strategy == "no"  # else transformers has set it, in a configuration that is copied
    for name, why in _NEVER.items():
        if given[name]:
            raise ValueError(f"{name} is not supported: {why}; leave it out.")
    for name in _SEVERAL:
        if given[name] and not _several():
            raise ValueError(f"{name} needs several processes (torchrun, accelerate launch); leave it out.")
    for name, there, needed in (
        ("fsdp", _several(), "several processes (torchrun --nproc-per-node=8 $(which atwu) ...)"),
        ("fp16", _gpu(config), "a GPU (bf16 does not)"),
    ):
        if getattr(config, name) and not there:
            raise ValueError(f"{name} needs {needed}; leave it out to train without.")
    for name in ("DEEPSPEED", "PARALLELISM_CONFIG", *([] if config.fsdp else ["FSDP"])):
        if os.environ.get(f"ACCELERATE_USE_{name}", "").lower() == "true":
            raise ValueError(
                f"accelerate is configured to use {name} but the run is not; use --fsdp to shard, so that the "
                "record states it."
            )
    if config.fsdp_config and not config.fsdp:
        raise ValueError("fsdp_config has no effect without fsdp; set both or neither.")
    _check_loggers(config.report_to)


def check_sharding(config: TrainingArguments, *, quantized: bool) -> None:
    """Reject unsupported sharding settings."""
    how = config.fsdp_plugin_args
    if how is None:
        if config.fsdp:
            raise ValueError("fsdp: xla is not supported.")
        return
    for asked, why in (
        (how["fsdp_version"] != 2, "version must be 2"),
        (how["state_dict_type"] not in _STATE_DICTS, f"state_dict_type must be one of {', '.join(_STATE_DICTS)}"),
        (
            how["cpu_ram_efficient_loading"],
            ("cpu_ram_efficient_loading is not supported: every process reads the weights"),
        ),
        (
            str(how["auto_wrap_policy"]).upper() == "SIZE_BASED_WRAP",
            "SIZE_BASED_WRAP does not work for lists of layers",
        ),
        (how.get("cpu_offload") and not _gpu(config), "cpu_offload needs a GPU"),
        (quantized, "quantized weights cannot be sharded; leave out quantize or fsdp"),
    ):
        if asked:
            raise ValueError(f"fsdp: {why}.")


def _several() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def _gpu(config: TrainingArguments) -> bool:
    return torch.accelerator.is_available() and not config.use_cpu


def _check_loggers(report_to: str | list[str] | None) -> None:
    named = [report_to] if isinstance(report_to, str) else report_to or []
    if not (wanted := set(named) - {"none", "all"}):
        return
    from transformers.integrations.integration_utils import get_available_reporting_integrations

    there: list[str] = get_available_reporting_integrations()
    if missing := sorted(wanted - set(there)):
        have = f"installed: {', '.join(there)}" if there else "none is"
        raise ImportError(
            f"report_to: {', '.join(missing)} is not installed ({have}); install its package, or use none."
        )
