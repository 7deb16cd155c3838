"""Two real processes train to the same result as one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["atwu", "gt_ga", "rmu", "undial", "atwu_dpo"])
def test_two_processes_equal_one(method, model_folder, data_files, tmp_path):
    forget, retain = data_files
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def arguments(output, rows):
        return [
            *("unlearn", "--model", str(model_folder), "--forget", str(forget), "--retain", str(retain)),
            *("--output", str(output), "--method", method, "--num-train-epochs", "2", "--learning-rate", "1e-3"),
            *("--per-device-train-batch-size", str(rows), "--gradient-accumulation-steps", "2", "--scorer-every", "2"),
            *("--use-cpu", "--disable-tqdm", "--save-strategy", "no", "--budget", "soft"),
        ]

    entry = tmp_path / "entry.py"
    entry.write_text("from atwu.cli import main\nmain()\n")
    alone, together = tmp_path / "alone", tmp_path / "together"
    subprocess.run([sys.executable, entry, *arguments(alone, 4)], env=environment, check=True, capture_output=True)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    done = subprocess.run(
        [*launch, str(entry), *arguments(together, 2), "--ddp-backend", "gloo"],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    start = load_file(model_folder / "model.safetensors")
    one, two = load_file(alone / "model.safetensors"), load_file(together / "model.safetensors")
    changed = [name for name in one if not torch.equal(one[name], start[name])]
    assert changed == ([name for name in one if "down_proj" in name] if method == "rmu" else list(one))
    moved = max((one[name] - start[name]).abs().max() for name in one)
    apart = max((one[name] - two[name]).abs().max() for name in one)
    assert moved > 1e-3
    assert apart < 2e-3 * moved
    if method.startswith("atwu"):
        learned = [load_file(folder / "scorer.safetensors") for folder in (alone, together)]
        assert learned[0]["linear.weight"].abs().max() > 1e-3
        for name in learned[0]:
            torch.testing.assert_close(learned[0][name], learned[1][name], atol=1e-5, rtol=1e-3)
