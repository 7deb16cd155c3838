"""A real process, really killed at any step, continues to bit-identical weights and scorer."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.commands import Started, run_command


def command(model: Path, rows: tuple[Path, Path], output: Path, *more: str) -> list[str]:
    return [
        *("unlearn", "--model", str(model)),
        *("--forget", str(rows[0]), "--retain", str(rows[1]), "--output", str(output), "--method", "atwu"),
        *("--num-train-epochs", "8", "--per-device-train-batch-size", "2", "--gradient-accumulation-steps", "2"),
        *("--scorer-every", "3", "--learning-rate", "1e-3", "--save-strategy", "steps", "--save-steps", "4"),
        *("--use-cpu", "--disable-tqdm", *more),
    ]


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def last_step(log: Path) -> int:
    lines = log.read_text().splitlines() if log.is_file() else []
    return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0


def kill_at(arguments: list[str], log: Path, step: int) -> None:
    process = Started(arguments, env=ENVIRONMENT)
    deadline = time.monotonic() + 120
    while last_step(log) < step:
        assert not process.ended(), "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert process.kill().returncode == -signal.SIGKILL


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_bits(model_folder, data_files, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run_command(command(model_folder, data_files, whole), env=ENVIRONMENT).returncode == 0
    arguments = command(model_folder, data_files, killed)
    work = killed.with_name("killed.incomplete")
    seed = int(time.time())
    print("seed of the kill steps:", seed)
    draw = random.Random(seed)
    steps = (draw.randint(5, 20), draw.randint(25, 40))  # of 48; one in the middle of an epoch, one after a resume
    for step in steps:
        kill_at(arguments, work / "log.jsonl", step)
        assert not killed.exists()
    done = run_command(arguments, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert "resuming the unfinished run at step" in done.stdout
    assert not work.exists()
    for name in ("model.safetensors", "scorer.safetensors"):
        one, other = load_file(whole / name), load_file(killed / name)
        assert one.keys() == other.keys()
        for key in one:
            assert torch.equal(one[key], other[key]), (name, key, steps)
    records = [json.loads((folder / "run.json").read_text()) for folder in (whole, killed)]
    assert records[0]["result_fingerprint"] == records[1]["result_fingerprint"]
    assert records[1]["resumed_from_step"] > 0
    logs = [[json.loads(line) for line in (f / "log.jsonl").read_text().splitlines()] for f in (whole, killed)]
    assert [line["step"] for line in logs[0] if "loss" in line] == list(range(1, 49))
    assert [line for line in logs[0] if "loss" in line] == [line for line in logs[1] if "loss" in line]


@pytest.mark.slow
def test_another_run_in_the_same_place_is_refused(model_folder, data_files, tmp_path):
    output = tmp_path / "out"
    kill_at(command(model_folder, data_files, output), tmp_path / "out.incomplete" / "log.jsonl", 5)
    other = command(model_folder, data_files, output, "--beta", "3")
    done = run_command(other)
    assert done.returncode == 1
    assert "holds an unfinished request that differs in options.beta" in " ".join(done.stderr.split())
    assert run_command([*other, "--overwrite"]).returncode == 0
    again = run_command(other)
    assert again.returncode == 1
    assert "already holds a finished run" in " ".join(again.stderr.split())
