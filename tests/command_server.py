"""Starts commands by forking a process that has imported all they need, which takes a command seconds.

A connection brings one request, a line of JSON; the answers are the command's process and, once it has ended, its exit code.
The server ends when nobody is connected any more.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import multiprocessing.util
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

IMPORTED = (
    *("atwu.cli.app", "atwu.evaluation.evaluate", "atwu.experiments.run_study", "atwu.report.read_records"),
    *("atwu.request.unlearn", "atwu.exporting.export_run", "openai"),
    *("rouge_score.rouge_scorer", "transformers.models.llama.modeling_llama"),
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(address: str) -> None:
    """Answer requests at a socket of the file system."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # excludes imported objects from garbage collection
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("listening", flush=True)
    clients = {listener.accept()[0]}
    running: dict[int, socket.socket] = {}
    while clients:
        for ready in select.select(
            [listener, *clients.difference(running.values())], [], [], 0.01 if running else None
        )[0]:
            if ready is listener:
                clients.add(listener.accept()[0])
                continue
            line = ready.makefile().readline()
            if not line:
                clients.remove(ready)
                continue
            child = os.fork()
            if not child:
                os.setsid()
                ready.sendall(f"{os.getpid()}\n".encode())
                for each in (listener, *clients):
                    each.close()
                run(**json.loads(line))
            running[child] = ready
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            client = running.pop(ended[0])
            clients.remove(client)
            with contextlib.suppress(OSError), client:
                client.sendall(f"{os.waitstatus_to_exitcode(ended[1])}\n".encode())
    os.unlink(address)


def run(arguments: list[str], env: dict[str, str], cwd: str, out: str, err: str, code: str) -> NoReturn:
    """Be a command, to its end."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, out), (2, err)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for signal_number in SIGNALS:  # a test run in the background ignores some
        signal.signal(signal_number, signal.SIG_DFL)
    encoding = os.environ.get("PYTHONIOENCODING")
    for stream in (sys.stdout, sys.stderr) if encoding else ():  # as an interpreter that starts would
        stream.reconfigure(encoding=encoding, errors="strict" if stream is sys.stdout else "backslashreplace")
    multiprocessing.util.spawnv_passfds = forked
    sys.argv = ["atwu", *arguments]
    exit_code = 1
    try:
        exec(code, {"__name__": "__main__"})
        exit_code = 0
    except SystemExit as end:
        exit_code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def forked(path: str, arguments: Sequence[Any], kept: Sequence[int]) -> int:
    """Run in a fork what multiprocessing would start an interpreter for; only the files that it passes on stay open."""
    child = os.fork()
    if not child:
        for low, high in itertools.pairwise([*sorted({0, 1, 2, *kept}), 4096]):
            os.closerange(low + 1, high)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        try:
            exec(arguments[arguments.index("-c") + 1], {})
        finally:
            os._exit(0)
    return child


if __name__ == "__main__":
    serve(sys.argv[1])
