"""What Ctrl-C, SIGTERM and SIGHUP do to a command: one line, and the exit code 128 + signal. No other file sets handlers.

A command that is interrupted ends at once, as if it had been killed: whatever it writes appears whole or not at all, so there
is nothing to clean up, and no exception that a library could swallow. What should come to an end first, a training step or a
call that is paid for, holds signals back; a second one ends the process whatever it does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from atwu._progress import where

_WORDS = {"SIGINT": "Ctrl-C", "SIGTERM": "SIGTERM", "SIGHUP": "SIGHUP"}
_SIGNALS = {getattr(signal, name): words for name, words in _WORDS.items() if hasattr(signal, name)}


@dataclass(slots=True)
class DeferredSignal:
    """Signals that are held back."""

    first: Callable[[], object]
    """Called when the first one comes."""
    number: int | None = None
    """That one, once it came."""


@dataclass(slots=True)
class _Command:
    """What is interrupted."""

    process: int | None = None
    """The process that took the signals over; None for none, as in Python code that uses the package."""
    name: str = "atwu"
    then: str = ""
    """How it goes on."""
    patient: bool = False
    """A second signal is nothing new: several processes pass on the same one."""
    held: DeferredSignal | None = None


_command = _Command()


def install_handlers() -> None:
    """Take over the signals of this process, but for those that it was told to ignore (`nohup`)."""
    _command.process, _command.patient = os.getpid(), "TORCHELASTIC_RUN_ID" in os.environ
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _came)


def install_worker_handlers() -> None:
    """Take over those of a worker: the process that it works for hears them too, and passes on one."""
    _command.process, _command.patient = os.getpid(), True
    for number in _SIGNALS:
        signal.signal(number, _came if number == signal.SIGTERM else signal.SIG_IGN)


def name_command(name: str, *, then: str) -> None:
    """Say which command runs here, and how it goes on when it is given again."""
    _command.name, _command.then = f"atwu {name}", then


@contextlib.contextmanager
def deferred(first: Callable[[], object] = lambda: None) -> Iterator[DeferredSignal]:
    """Inside, a first signal calls `first` and nothing else; the command ends when this does."""
    before, held = _command.held, DeferredSignal(first)
    _command.held = held
    try:
        yield held
    finally:
        _command.held = before
        if held.number is not None:
            end(held.number)


def abandon() -> None:
    """For `deferred`: leave it by an exception."""
    raise KeyboardInterrupt


def end(number: int, done: str = "") -> NoReturn:
    """End as a signal wants it: the processes started from here first, then one line.

    Args:
        number: the signal.
        done: what was done about it.
    """
    if "multiprocessing" in sys.modules:
        import multiprocessing

        children = multiprocessing.active_children()
        for child in children:
            child.terminate()
        for child in children:
            child.join()
    with contextlib.suppress(Exception):  # the signal may have come in the middle of a write
        sys.stdout.flush()
    if os.environ.get("RANK", "0") == "0":
        said = [f"{_command.name}: stopped by {_SIGNALS[signal.Signals(number)]} {where()}", done, _command.then]
        _write("; ".join(filter(None, said)))
    os._exit(128 + number)


def _came(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _command.process:  # forked from it: Ctrl-C reaches both, and the other one decides
        if number != signal.SIGINT:
            os._exit(128 + number)
        return
    if not _command.patient:
        for each in _SIGNALS:
            if signal.getsignal(each) == _came:
                signal.signal(each, signal.SIG_DFL)
    held = _command.held
    if held is None:
        end(number)
    if held.number is None:
        held.number = number
        held.first()


def _write(line: str) -> None:
    """Past Python's own buffers, which may be in use; below a bar, where there is one."""
    with contextlib.suppress(OSError, ValueError):
        text = ("\n" if sys.stderr.isatty() else "") + line + "\n"
        os.write(2, text.encode(sys.stderr.encoding or "ascii", errors="backslashreplace"))
