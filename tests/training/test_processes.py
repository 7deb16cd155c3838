"""Two real processes train to the same result as one."""

from __future__ import annotations

import json
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


METHODS = ("atwu", "gt_ga", "rmu", "undial", "atwu_dpo")
ENTRY = """
import json, sys
from atwu.cli.app import _leave_process_group, execute

for arguments in json.loads(sys.argv[1]):
    execute(arguments)
_leave_process_group()
"""


@pytest.fixture(scope="module")
def trained(model_folder, data_files, tmp_path_factory):
    """Every method's run alone and in two processes; all of a kind in one start, since starting takes longest."""
    folder = tmp_path_factory.mktemp("processes")
    forget, retain = data_files
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def arguments(kind, method, rows, *more):
        return [
            *("unlearn", "--model", str(model_folder), "--forget", str(forget), "--retain", str(retain)),
            *("--output", str(folder / kind / method), "--method", method, "--num-train-epochs", "2"),
            *("--learning-rate", "1e-3", "--per-device-train-batch-size", str(rows), "--scorer-every", "2"),
            *("--gradient-accumulation-steps", "2", "--use-cpu", "--disable-tqdm", "--save-strategy", "no"),
            *("--budget", "soft", *more),
        ]

    entry = folder / "entry.py"
    entry.write_text(ENTRY)
    alone = json.dumps([arguments("alone", method, 4) for method in METHODS])
    together = json.dumps([arguments("together", method, 2, "--ddp-backend", "gloo") for method in METHODS])
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    for command in ([sys.executable, str(entry), alone], [*launch, str(entry), together]):
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_two_processes_equal_one(method, trained, model_folder):
    alone, together = trained / "alone" / method, trained / "together" / method
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
