"""The running command: how it was started, and how Ctrl-C, SIGTERM and SIGHUP end it.

A signal prints one line, and the exit code is 128 + signal. This is the only module that sets signal handlers. An
interrupted command ends at once, as if killed. All files are written atomically, so there is nothing to clean up, and
no library can swallow an exception. Code that must finish first (a training step, a paid API call) defers the signal; a
second signal ends the process immediately.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

_program = ["atwu"]


def set_program(started_as: str) -> None:
    """Note the path of the running program; a script of the user registers what plain `atwu` does not know."""
    path = Path(started_as)
    _program[:] = ["atwu"]
    if path.suffix == ".py" and path.name != "__main__.py":
        _program[:] = ["python", started_as]


def program() -> list[str]:
    """Return the words that start the same command line again."""
    return list(_program)


def command_line(words: Sequence[str]) -> str:
    """Quote words as the shell of this system reads them."""
    if os.name == "nt":
        return subprocess.list2cmdline(words)
    return shlex.join(words)


_WORDS = {"SIGINT": "Ctrl-C", "SIGTERM": "SIGTERM", "SIGHUP": "SIGHUP"}
# Windows has no SIGHUP.
_SIGNALS = {getattr(signal, name): words for name, words in _WORDS.items() if hasattr(signal, name)}


@dataclass(slots=True)
class DeferredSignal:
    """A signal that is deferred."""

    first: Callable[[], object]
    """Called when the first signal arrives."""
    number: int | None = None


@dataclass(slots=True)
class _Command:
    process: int | None = None
    """Process whose signals are handled; None when the package is used from Python code."""
    name: str = "atwu"
    then: str = ""
    """How to continue the command."""
    patient: bool = False
    """Whether a second signal is ignored, because several processes forward the same one."""
    deferred: DeferredSignal | None = None
    """What happens to a signal inside of `deferred`."""


_command = _Command()


def install_handlers() -> None:
    """Install the handlers in this process, except for signals that it ignores (`nohup`)."""
    _command.process, _command.patient = os.getpid(), "TORCHELASTIC_RUN_ID" in os.environ
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _came)


def install_worker_handlers() -> None:
    """Install the handlers in a worker; its parent receives the signals too and forwards one."""
    _command.process, _command.patient = os.getpid(), True
    for number in _SIGNALS:
        signal.signal(number, _came if number == signal.SIGTERM else signal.SIG_IGN)


def remove_handlers() -> None:
    """Let the next signal end the process at once and silently, as after the last line of a command."""
    for number in _SIGNALS:
        if signal.getsignal(number) == _came:
            signal.signal(number, signal.SIG_DFL)


def set_command_name(name: str, *, then: str) -> None:
    """Set the name of the running command and how it continues when run again."""
    _command.name, _command.then = f"atwu {name}".rstrip(), then


def set_finished() -> None:
    """Say from now on that the command has its result, since the same command would not resume."""
    _command.then = "the run is finished"


@contextlib.contextmanager
def deferred(first: Callable[[], object] = lambda: None) -> Iterator[DeferredSignal]:
    """Defer signals inside the block: the first one calls `first`, and the command ends after the block."""
    outer, signalled = _command.deferred, DeferredSignal(first)
    _command.deferred = signalled
    try:
        yield signalled
    finally:
        _command.deferred = outer
        if signalled.number is not None:
            end_process(signalled.number)


def leave_deferred() -> None:
    """Leave a `deferred` block by an exception."""
    raise KeyboardInterrupt


def end_process(number: int, done: str = "") -> NoReturn:
    """End the process for a signal: stop its child processes, then print one line.

    Args:
        done: what was saved because of it.
    """
    if "multiprocessing" in sys.modules:
        import multiprocessing

        # Before the line is printed: workers that are still at work would print below it.
        children = multiprocessing.active_children()
        for child in children:
            child.terminate()
        for child in children:
            child.join()
    with contextlib.suppress(Exception):  # the signal may arrive during a write
        sys.stdout.flush()
    stop = f"{_command.name}: stopped by {_SIGNALS[signal.Signals(number)]}"
    write_line("; ".join(filter(None, [stop, done, _command.then])))
    # Not `sys.exit`: its exception could be caught, and threads would be waited for.
    os._exit(128 + number)


def _came(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _command.process:  # a fork: Ctrl-C reaches both processes, and the parent decides
        if number != signal.SIGINT:
            os._exit(128 + number)
        return
    # The system ends the process at the next signal, whatever its code is doing.
    if not _command.patient:
        remove_handlers()
    signalled = _command.deferred
    if signalled is None:
        end_process(number)
    if signalled.number is None:
        signalled.number = number
        signalled.first()


def write_line(line: str) -> None:
    """Write in the first process without Python's buffers, which may be in use; below a progress bar."""
    if os.environ.get("RANK", "0") != "0":
        return
    with contextlib.suppress(OSError, ValueError):
        # A progress bar leaves the cursor at the end of its line.
        if sys.stderr.isatty():
            line = f"\n{line}"
        os.write(2, f"{line}\n".encode(sys.stderr.encoding or "ascii", errors="backslashreplace"))
