"""What a record says of the machine."""

from __future__ import annotations

import torch

from atwu.modeling.device import machine


def test_the_processor_is_named_with_its_vector_instructions() -> None:
    name, capability = machine(torch.device("cpu")).rsplit(", ", 1)
    assert name.isprintable()
    assert name
    assert capability == torch.backends.cpu.get_cpu_capability()
