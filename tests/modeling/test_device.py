"""Description of the device."""

from __future__ import annotations

import pytest
import torch

from atwu.modeling import device
from atwu.modeling.device import emulates_bfloat16, machine, multiplies_bfloat16


def test_the_cpu_is_described_with_its_vector_instructions() -> None:
    name, capability = machine(torch.device("cpu")).rsplit(", ", 1)
    assert name.isprintable()
    assert name
    assert capability == torch.backends.cpu.get_cpu_capability()


@pytest.mark.parametrize(
    ("processor", "tiles", "instructions", "emulated"),
    [
        ("x86_64", False, False, True),
        ("x86_64", True, False, False),
        ("x86_64", False, True, False),
        ("aarch64", False, False, False),
    ],
)
def test_bfloat16_is_emulated_without_instructions_for_it(
    processor, tiles, instructions, emulated, monkeypatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: processor)
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: tiles)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: instructions)
    assert emulates_bfloat16(torch.device("cpu")) == emulated
    assert not emulates_bfloat16(torch.device("cuda"))


@pytest.mark.parametrize(
    ("tiles", "seconds", "faster"), [(True, 0.3, True), (True, 0.9, False), (True, 2.0, False), (False, 0.3, False)]
)
def test_bfloat16_is_chosen_on_a_processor_where_it_is_measured_to_be_faster(tiles, seconds, faster, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: tiles)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(device, "_product_seconds", {torch.bfloat16: seconds, torch.float32: 1.0}.get)
    assert multiplies_bfloat16.__wrapped__(torch.device("cpu")) is faster


def test_a_matrix_product_takes_time():
    assert device._product_seconds(torch.float32) > 0


def test_a_gpu_that_emulates_bfloat16_does_not_multiply_in_it(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert not multiplies_bfloat16.__wrapped__(torch.device("cuda"))
