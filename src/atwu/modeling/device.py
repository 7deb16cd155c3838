"""Which device to run on."""

from __future__ import annotations

import torch


def pick_device(name: str | None = None) -> torch.device:
    """The named device, or the best one there is.

    Raises:
        ValueError: not a device, or not available here.
    """
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"unknown device {name!r}; use cpu, cuda, cuda:N or mps.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {name!r} asked for, but {torch.cuda.device_count()} CUDA devices are visible; use cpu."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError("device 'mps' asked for, but Metal is not available here; use cpu.")
    return device
