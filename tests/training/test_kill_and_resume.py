"""A run stopped by a signal: its message, its checkpoint, and which run may resume from it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from tests.commands import Started, run_here
from tests.training.conftest import make_rows, write_rows


def command(model: Path, rows: tuple[Path, Path], output: Path, *more: str) -> list[str]:
    return [
        *("unlearn", "--model", str(model)),
        *("--forget", str(rows[0]), "--retain", str(rows[1]), "--output", str(output), "--method", "atwu"),
        *("--holdout", str(rows[1])),
        *("--max-steps", "12", "--per-device-train-batch-size", "2", "--gradient-accumulation-steps", "2"),
        *("--scorer-every", "3", "--learning-rate", "1e-3", "--save-strategy", "steps", "--save-steps", "9"),
        *("--use-cpu", "--disable-tqdm", *more),
    ]


NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def last_step(log: Path) -> int:
    lines = log.read_text().splitlines() if log.is_file() else []
    return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0


def stop_at(arguments: list[str], log: Path, step: int, number: int) -> str:
    """Send a run a signal at a step; return its standard error."""
    process = Started(arguments, env=ENVIRONMENT)
    deadline = time.monotonic() + 120
    while last_step(log) < step:
        assert not process.ended(), "the run ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send(number)
    done = process.wait()
    assert done.returncode == 128 + number, done.stderr
    return done.stderr


@pytest.mark.slow
def test_a_stopped_run_has_a_checkpoint_and_another_run_is_rejected_there(model_folder, tmp_path):
    rows = write_rows(tmp_path / "few.jsonl", make_rows(4)), write_rows(tmp_path / "kept.jsonl", make_rows(4, 24))
    output, work = tmp_path / "out", tmp_path / "out.incomplete"
    number, name = random.choice(sorted(NAMES.items()))
    said = stop_at(command(model_folder, rows, output), work / "log.jsonl", 5, number)
    assert re.search(rf"^atwu unlearn: stopped by .*{name}", said, re.M)
    assert "Traceback" not in said
    assert "a second signal ends the command at once" in said
    (checkpoint,) = work.glob("checkpoint-*")
    found = int(checkpoint.name.removeprefix("checkpoint-"))
    assert found >= 5
    assert not output.exists()
    done = run_here(*command(model_folder, rows, output, "--beta", "3"))
    assert "options.beta" in str(done.exception)
