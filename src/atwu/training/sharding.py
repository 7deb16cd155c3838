"""Training in several processes with sharded weights (FSDP 2): what accelerate and transformers leave open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor
    from transformers import TrainingArguments

_T = TypeVar("_T")
_STATE_DICTS = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")


def broadcast_from_main(config: TrainingArguments, make: Callable[[], _T]) -> _T:
    """Compute a value in the main process and broadcast it to every process."""
    if config.world_size == 1:
        return make()
    from accelerate.utils import broadcast_object_list

    objects: list[Any] = [make() if config.process_index == 0 else None]
    broadcast_object_list(objects)
    value: _T = objects[0]
    return value


def repeats(rows: int) -> str:
    """Return a warning about rows that accelerate repeats silently when they do not divide into full batches."""
    return (
        f"warning: the last step of an epoch repeats {rows} of its first rows, so that all processes have equally "
        "many; choose sizes that divide the number of rows, or use --dataloader-drop-last, to match training in one "
        "process"
    )


def check_sharding(config: TrainingArguments, *, quantized: bool) -> None:
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
        (
            how.get("cpu_offload") and not (torch.accelerator.is_available() and not config.use_cpu),
            "cpu_offload needs a GPU",
        ),
        (quantized, "quantized weights cannot be sharded; leave out quantize or fsdp"),
    ):
        if asked:
            raise ValueError(f"fsdp: {why}.")


def shard_model(accelerator: Accelerator, options: Mapping[str, Any]) -> None:
    """Enable sharding in an accelerator without an FSDP plugin, as for processes on CPUs; `options` are the
    plugin's."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    state, plugin = accelerator.state, FullyShardedDataParallelPlugin(**options)
    if state.mixed_precision != "no":
        plugin.set_mixed_precision(state.mixed_precision)
    state.fsdp_plugin = plugin
    state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP


def gathered(accelerator: Accelerator, model: Any) -> dict[str, Tensor]:
    """Gather all weights of a sharded model in the main process; tied weights are one tensor, as `save_pretrained`
    expects."""
    weights: dict[str, Tensor] = accelerator.get_state_dict(model)
    named = list(model.named_parameters(remove_duplicate=False))
    first = {id(parameter): name for name, parameter in reversed(named)}
    shared = {name: weights[first[id(parameter)]] for name, parameter in named if name in weights}
    return weights | shared
