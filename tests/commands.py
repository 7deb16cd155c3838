"""Runs the command in a process of its own, without importing everything anew every time.

A process that has imported the package waits, and every command is run in a fork of it (`tests/command_server.py`). Commands
whose start is what matters are started from nothing in their tests.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from atwu._files import file_lock
from atwu.cli.app import QUIET, run_cli

COMMAND = "from atwu.cli import main; main()"
IN_PROCESSES = """
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
launch = LaunchConfig(1, 1, {number}, rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork")
elastic_launch(launch, exec)({code!r}, {{"__name__": "__main__"}})
"""
"""What torchrun --nproc-per-node does, in forks."""
IMPORTED = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", **QUIET}
"""Environment variables that are read once, on import, and are therefore the same for all commands."""


def _connected(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


@functools.cache
def _server() -> tuple[str, socket.socket]:
    """Address of the server that starts commands, shared by all workers of a run, and the connection that keeps it alive."""
    address = f"{tempfile.gettempdir()}/atwu-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    with file_lock(Path(__file__), waiting=lambda: None):
        if not Path(address).exists():
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.command_server", address],
                env={name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")} | IMPORTED,
                cwd=Path(__file__).parents[1],
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            assert server.stdout is not None
            server.stdout.readline()
        return address, _connected(address)


class Started:
    """A command at work, in a process group of its own.

    Args:
        arguments: behind the name `atwu`.
        code: what is run instead of the command, in its name.
        env: its environment; by default this process's.
        cwd: its working folder; by default this process's.
    """

    def __init__(
        self,
        arguments: Sequence[object],
        *,
        code: str = COMMAND,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.arguments = list(map(str, arguments))
        self._folder = tempfile.TemporaryDirectory()
        request = {
            "arguments": self.arguments,
            "env": {**(os.environ if env is None else env), **IMPORTED},
            "cwd": str(cwd or Path.cwd()),
            "out": f"{self._folder.name}/out",
            "err": f"{self._folder.name}/err",
            "code": code,
        }
        connection = _connected(_server()[0])
        connection.sendall(json.dumps(request).encode() + b"\n")
        self._answers = connection.makefile()
        self._group = int(self._answers.readline())

    def ended(self) -> bool:
        """Whether it has come to an end by itself."""
        return bool(select.select([self._answers], [], [], 0)[0])

    def send(self, number: int) -> None:
        """Send a signal to it and all that it has started."""
        os.killpg(self._group, number)

    def said(self) -> str:
        """Output so far; standard error comes last."""
        there = [path for name in ("out", "err") if (path := Path(self._folder.name, name)).is_file()]
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in there)

    def kill(self) -> subprocess.CompletedProcess[str]:
        """Kill it with all that it has started, unless it has just ended."""
        if not self.ended():
            os.killpg(self._group, signal.SIGKILL)
        return self.wait()

    def wait(self) -> subprocess.CompletedProcess[str]:
        """What came of it."""
        with self._answers:
            code = int(self._answers.readline())
        with self._folder as folder:
            out, err = (Path(folder, name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
        return subprocess.CompletedProcess(self.arguments, code, out, err)


def run_command(
    arguments: Sequence[object], *, code: str = COMMAND, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return Started(arguments, code=code, env=env, cwd=cwd).wait()


@dataclass(frozen=True, slots=True)
class Done:
    """Outcome of a command in this process."""

    exit_code: int
    output: str
    exception: BaseException | None = None


def run_here(*arguments: object) -> Done:
    """Run `atwu` in this process, for tests that replace parts of it."""
    printed, words = io.StringIO(), [str(argument) for argument in arguments]
    argv = mock.patch.object(sys, "argv", ["atwu", *words])
    with argv, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            run_cli(words)
        except SystemExit as end:
            return Done(int(end.code or 0), printed.getvalue())
        except Exception as error:
            return Done(1, printed.getvalue(), error)
    return Done(0, printed.getvalue())
