"""Training in several processes with sharded weights (FSDP 2): what accelerate and transformers leave open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor

    from atwu.training.config import TokenTrainingConfig

_T = TypeVar("_T")


def broadcast_from_main(config: TokenTrainingConfig, make: Callable[[], _T]) -> _T:
    """Compute a value in the main process and broadcast it to every process."""
    if config.world_size == 1:
        return make()
    from accelerate.utils import broadcast_object_list

    made: list[Any] = [make() if config.process_index == 0 else None]
    broadcast_object_list(made)
    value: _T = made[0]
    return value


def repeats(rows: int) -> str:
    """Return a warning about rows that accelerate repeats silently when they do not divide into full batches."""
    return (
        f"warning: the last step of an epoch repeats {rows} of its first rows, so that all processes have equally "
        "many; choose sizes that divide the number of rows, or use --dataloader-drop-last, to match training in one "
        "process"
    )


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
