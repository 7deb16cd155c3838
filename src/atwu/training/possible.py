"""What a run is asked for and would not do: refused, where transformers leaves it out and says nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from atwu.training.config import TokenTrainingConfig

_NEVER = {
    "label_smoothing_factor": "the losses are those of the method",
    "train_sampling_strategy": "which row comes when follows from seed and epoch",
    "torch_compile": "the pass that reads log-probabilities off the last states cannot be compiled",
    "torch_compile_backend": "see torch_compile",
    "torch_compile_mode": "see torch_compile",
}
"""Options of transformers that nothing here can follow, and why."""


def check_possible(config: TokenTrainingConfig) -> None:
    """Refuse what this package or this machine cannot do.

    Raises:
        ValueError, ImportError: naming the option, what it needs, and what to do.
    """
    for name, why in _NEVER.items():
        if getattr(config, name) != type(config).__dataclass_fields__[name].default:
            raise ValueError(f"{name} has no effect here: {why}; leave it out.")
    gpu = torch.accelerator.is_available() and not config.use_cpu
    several = gpu and int(os.environ.get("WORLD_SIZE", "1")) > 1
    for name, there, needed in (
        ("fsdp", several, "several processes with a GPU each (torchrun --nproc-per-node=8 $(which atwu) ...)"),
        ("deepspeed", gpu, "a GPU"),
        ("fp16", gpu, "a GPU (bf16 does not)"),
    ):
        if getattr(config, name) and not there:
            raise ValueError(f"{name} needs {needed}; leave it out to train without.")
    if config.fsdp_config and not config.fsdp:
        raise ValueError("fsdp_config has no effect without fsdp; give both or neither.")
    _check_loggers(config.report_to)


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
