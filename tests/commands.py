"""Runs the command in a process of its own, without importing everything anew every time.

A process that has imported the package, and done nothing else, waits; every command is run in a fork of it. Commands whose
start is what matters are started from nothing in their tests.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from atwu.cli.app import execute

SERVER = """
import gc, json, os, signal, sys, traceback
import atwu.evaluation.run, atwu.experiments.study.conduct, atwu.report.records, atwu.request.run, atwu.shipping.run
import rouge_score.rouge_scorer, transformers.models.llama.modeling_llama
from atwu.cli import main
import atwu.cli.app

gc.freeze()  # what is imported is not looked through at every collection
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if not child:
        os.setsid()
        print(os.getpid(), flush=True)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a test run in the background ignores some
            signal.signal(number, signal.SIG_DFL)
        encoding = os.environ.get("PYTHONIOENCODING")
        for stream in (sys.stdout, sys.stderr) if encoding else ():  # as an interpreter that starts would
            stream.reconfigure(encoding=encoding, errors="strict" if stream is sys.stdout else "backslashreplace")
        sys.argv = ["atwu", *request["arguments"]]
        code = 1
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
IMPORTED = {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""What is read once, on import, and is therefore the same for all commands."""


@functools.cache
def _server() -> subprocess.Popen[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return subprocess.Popen(
        [sys.executable, "-c", SERVER], env=kept | IMPORTED, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )


class Started:
    """A command at work, in a process group of its own; one at a time.

    Args:
        arguments: behind the name `atwu`.
        env: its environment; by default this process's.
        cwd: its working folder; by default this process's.
    """

    def __init__(
        self, arguments: Sequence[object], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.arguments = list(map(str, arguments))
        self._folder = tempfile.TemporaryDirectory()
        request = {
            "arguments": self.arguments,
            "env": {**(os.environ if env is None else env), **IMPORTED},
            "cwd": str(cwd or Path.cwd()),
            "out": f"{self._folder.name}/out",
            "err": f"{self._folder.name}/err",
        }
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        self._answers = server.stdout
        server.stdin.write(json.dumps(request).encode() + b"\n")
        self._group = int(self._answers.readline())

    def ended(self) -> bool:
        """Whether it has come to an end by itself."""
        return bool(select.select([self._answers], [], [], 0)[0])

    def send(self, number: int) -> None:
        """Send a signal to it and all that it has started."""
        os.killpg(self._group, number)

    def said(self) -> str:
        """What it wrote to standard error so far."""
        path = Path(self._folder.name, "err")
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    def kill(self) -> subprocess.CompletedProcess[str]:
        """Kill it with all that it has started, unless it has just ended."""
        if not self.ended():
            os.killpg(self._group, signal.SIGKILL)
        return self.wait()

    def wait(self) -> subprocess.CompletedProcess[str]:
        """What came of it."""
        code = int(self._answers.readline())
        with self._folder as folder:
            out, err = (Path(folder, name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
        return subprocess.CompletedProcess(self.arguments, code, out, err)


def run_command(
    arguments: Sequence[object], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return Started(arguments, env=env, cwd=cwd).wait()


@dataclass(frozen=True, slots=True)
class Done:
    """What a command in this process came to."""

    exit_code: int
    output: str
    exception: BaseException | None = None


def run_here(*arguments: object) -> Done:
    """Run `atwu` in this process, for tests that replace parts of it."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            execute([str(argument) for argument in arguments])
        except SystemExit as end:
            return Done(int(end.code or 0), printed.getvalue())
        except Exception as error:
            return Done(1, printed.getvalue(), error)
    return Done(0, printed.getvalue())
