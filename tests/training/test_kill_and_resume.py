"""A real process, really killed or interrupted at any step, continues to bit-identical weights and scorer."""

from __future__ import annotations

import json
import os
import random
import re
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


NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def last_step(log: Path) -> int:
    lines = log.read_text().splitlines() if log.is_file() else []
    return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0


def stop_at(arguments: list[str], log: Path, step: int, number: int = signal.SIGKILL) -> str:
    """Send a run a signal at a step; gives what it wrote to standard error."""
    process = Started(arguments, env=ENVIRONMENT)
    deadline = time.monotonic() + 120
    while last_step(log) < step:
        assert not process.ended(), "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send(number)
    done = process.wait()
    assert done.returncode == (-number if number == signal.SIGKILL else 128 + number), done.stderr
    return done.stderr


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_bits(model_folder, data_files, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run_command(command(model_folder, data_files, whole), env=ENVIRONMENT).returncode == 0
    arguments = command(model_folder, data_files, killed)
    work = killed.with_name("killed.incomplete")
    seed = int(time.time())
    print("seed of the kill steps:", seed)
    draw = random.Random(seed)
    steps = sorted(draw.sample(range(5, 40), 3))  # of 48
    stop_at(arguments, work / "log.jsonl", steps[0])
    assert not killed.exists()
    for step, (number, name) in zip(steps[1:], draw.sample(sorted(NAMES.items()), 2), strict=True):
        said = stop_at(arguments, work / "log.jsonl", step, number)
        (found,) = re.findall(
            rf"^atwu unlearn: stopped by {name} at training: (\d+) of 48 steps; checkpoint saved; the same command continues$",
            said,
            re.M,
        )
        assert "Traceback" not in said
        assert int(found) >= step
        assert (work / f"checkpoint-{found}").is_dir()
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
    stop_at(command(model_folder, data_files, output), tmp_path / "out.incomplete" / "log.jsonl", 5)
    other = command(model_folder, data_files, output, "--beta", "3")
    done = run_command(other)
    assert done.returncode == 1
    assert "holds an unfinished request that differs in options.beta" in " ".join(done.stderr.split())
    assert run_command([*other, "--overwrite"]).returncode == 0
    again = run_command(other)
    assert again.returncode == 1
    assert "already holds a finished run" in " ".join(again.stderr.split())
