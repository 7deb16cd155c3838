"""States of the random generators of Python, NumPy and PyTorch in a checkpoint, as JSON.

transformers pickles them, and a pickle of NumPy names modules that moved in version 2: a checkpoint written under NumPy 1
could not be continued under NumPy 2.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atwu._file_reading import read_object
from atwu._files import write_json


def random_state_name(process: int, processes: int) -> str:
    """Return the file of one process in a checkpoint."""
    if processes == 1:
        return "random_state.json"
    return f"random_state_{process}.json"


def write_random_state(path: Path, device: torch.device) -> None:
    """Write the states that draws on the CPU and on a device continue from."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, inner, gauss = random.getstate()
    write_json(
        path,
        {
            "python": [version, list(inner), gauss],
            "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
            "cpu": _as_text(torch.random.get_rng_state()),
            "devices": [_as_text(state) for state in _device_states(device)],
        },
    )


def set_random_state(path: Path, device: torch.device) -> None:
    """Set the states that `write_random_state` wrote; those of further devices are left as they are."""
    states = read_object(path)
    version, inner, gauss = states["python"]
    random.setstate((version, tuple(inner), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.random.set_rng_state(_as_tensor(states["cpu"]))
    device_states = [_as_tensor(text) for text in states["devices"]]
    if device.type == "cuda":
        for index, state in enumerate(device_states[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, index)
    elif device.type != "cpu" and device_states:
        _generator_of(device).set_rng_state(device_states[0])


def _device_states(device: torch.device) -> list[Tensor]:
    if device.type == "cpu":
        return []
    if device.type == "cuda":
        return list(torch.cuda.get_rng_state_all())
    return [_generator_of(device).get_rng_state()]


def _generator_of(device: torch.device) -> Any:
    """Return the module with the generator of a device that is neither CPU nor CUDA, such as `torch.mps`."""
    return torch.get_device_module(device)


def _as_text(state: Tensor) -> str:
    return bytes(state.cpu().tolist()).hex()


def _as_tensor(text: Any) -> Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
