"""Ctrl-C, SIGTERM and SIGHUP: real signals to real commands, which print one line and exit with 128 + the signal."""

from __future__ import annotations

import contextlib
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import COMMAND, Started, run_command

INTERRUPTED_VERDICT = f"""
import os, signal
from types import SimpleNamespace
import atwu.request.unlearn
summary = lambda: os.kill(os.getpid(), signal.SIGINT)
atwu.request.unlearn.unlearn = lambda *_, **__: SimpleNamespace(run=None, good=True, summary=summary)
{COMMAND}
"""
INTERRUPTED_EXIT = f"""
import atexit, os, signal
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
{COMMAND}
"""
NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


def arguments(models: Any, url: str, output: Path) -> list[str]:
    return [
        *("evaluate", "--model", str(models.unlearned), "--forget", "people:tiny:forget", "--limit", "12"),
        *("--metrics", "judge", "--max-new-tokens", "8", "--batch-tokens", "256", "--device", "cpu"),
        *("--output", str(output), "--judge", "openai:m", "--judge-url", url, "--judge-concurrency", "2"),
    ]


def caught(process: int) -> set[int]:
    """Signals that a process has a handler for."""
    found = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{process}/status").read_text(), re.M)
    assert found is not None
    return {number for number in NAMES if int(found[1], 16) >> (number - 1) & 1}


def starting(ignored: int | None = None) -> subprocess.Popen[str]:
    """A command that has installed its signal handlers and starts to import."""
    command = [sys.executable, "-m", "atwu", "evaluate", "--model", "nowhere", "--forget", "people:tiny:forget"]

    def dispositions() -> None:
        for number in NAMES:
            signal.signal(number, signal.SIG_IGN if number == ignored else signal.SIG_DFL)

    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=dispositions)
    while caught(process.pid) != set(NAMES) - {ignored}:
        assert process.poll() is None
        time.sleep(0.001)
    return process


def wait_for(there: Callable[[], bool], command: Started) -> None:
    deadline = time.monotonic() + 120
    while not there():
        assert not command.ended(), command.said()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("number", NAMES)
def test_a_starting_command_prints_a_line(number: int) -> None:
    process = starting()
    process.send_signal(number)
    said = process.communicate()[1]
    assert process.returncode == 128 + number
    assert re.fullmatch(rf"atwu( evaluate)?: .*{NAMES[number]}.*\n", said)


def test_a_finished_request_is_not_said_to_resume() -> None:
    words = ["unlearn", "--model", "some/model", "--forget", "people:tiny:forget", "--output", "out"]
    done = run_command(words, code=INTERRUPTED_VERDICT)
    assert done.returncode == 128 + signal.SIGINT
    assert re.fullmatch(r"atwu unlearn: stopped by Ctrl-C.*; the run is finished\n", done.stderr)


def test_a_signal_after_the_last_line_prints_nothing() -> None:
    command = [sys.executable, "-c", INTERRUPTED_EXIT, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert done.stdout.startswith("atwu ")


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_signal_ignored_by_the_parent_process_is_ignored() -> None:
    process = starting(ignored=signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert "SIGTERM" in process.communicate()[1]
    assert process.returncode == 128 + signal.SIGTERM


def test_asking_a_served_model_is_not_said_to_resume(environment, server) -> None:
    words = ("ask", "--model", "m", f"--model-url={server.url('slow-ask')}", "--about", "Egypt", "--kind", "place")
    command = Started(words, env=environment)
    wait_for(lambda: server.count("slow-ask") > 0, command)
    command.send(signal.SIGTERM)
    done = command.wait()
    assert done.returncode == 128 + signal.SIGTERM
    assert re.search("^atwu ask: stopped by SIGTERM.*; the same command asks the server again$", done.stderr, re.M)


def test_calls_in_flight_are_awaited_and_stored(models, environment, server, tmp_path):
    command = Started(
        arguments(models, server.url("slow"), tmp_path / "eval.json"),
        env=environment | {"ATWU_CACHE": str(tmp_path / "cache")},
    )
    wait_for(lambda: server.count("slow") > 2, command)
    command.send(signal.SIGTERM)
    done = command.wait()
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    last = r"^atwu evaluate: stopped by SIGTERM; the same command.*$"
    assert re.search(last, done.stderr, re.M)
    assert "Traceback" not in done.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "cache" / "replies.sqlite")) as store:
        replies = "SELECT count(*) FROM replies WHERE value LIKE '%prompt_tokens%'"  # the others are generations
        assert store.execute(replies).fetchone() == (server.count("slow"),)
    assert not (tmp_path / "eval.json").exists()


def test_a_second_signal_ends_at_once(models, environment, server, tmp_path):
    command = Started(
        arguments(models, server.url("stuck"), tmp_path / "eval.json"),
        env=environment | {"ATWU_CACHE": str(tmp_path / "cache")},
    )
    wait_for(lambda: server.count("stuck") == 2, command)
    command.send(signal.SIGINT)
    wait_for(lambda: "2 calls in flight" in command.said(), command)
    command.send(signal.SIGTERM)
    done = command.wait()
    assert done.returncode == -signal.SIGTERM
    assert "Traceback" not in done.stderr
