"""The `atwu` command: selects a command, and prints errors as one readable line."""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from atwu._command import remove_handlers, set_command_name, set_finished
from atwu._file_reading import printable
from atwu._names import Registry, did_you_mean
from atwu.cli.cli_options import parse_command
from atwu.cli.shared import stand_out
from atwu.errors import AtwuError, UsageError

COMMANDS = Registry[Any](
    "command",
    {
        "demo": "atwu.cli.study:DemoCommand",
        "finetune": "atwu.cli.train:FinetuneCommand",
        "unlearn": "atwu.cli.train:UnlearnCommand",
        "plan": "atwu.cli.train:PlanCommand",
        "ask": "atwu.cli.ask:AskCommand",
        "rows forms": "atwu.cli.row_files:RowsFormsCommand",
        "rows alternates": "atwu.cli.row_files:RowsAlternatesCommand",
        "rows retain": "atwu.cli.row_files:RowsRetainCommand",
        "rows paraphrases": "atwu.cli.row_files:RowsParaphrasesCommand",
        "rows labels": "atwu.cli.row_files:RowsLabelsCommand",
        "export": "atwu.cli.export:ExportCommand",
        "chat": "atwu.cli.ask:ChatCommand",
        "playground": "atwu.cli.ask:PlaygroundCommand",
        "evidence": "atwu.cli.export:EvidenceCommand",
        "evaluate": "atwu.cli.evaluate:EvaluateCommand",
        "compare": "atwu.cli.report:CompareCommand",
        "study run": "atwu.cli.study:StudyRunCommand",
        "study list": "atwu.cli.study:StudyListCommand",
        "study compare": "atwu.cli.study:StudyCompareCommand",
        "tune": "atwu.cli.study:TuneCommand",
        "report": "atwu.cli.report:ReportCommand",
        "judge agreement": "atwu.cli.report:JudgeAgreementCommand",
        "tokens": "atwu.cli.tokens:TokensCommand",
        "probe": "atwu.cli.tokens:ProbeCommand",
        "methods": "atwu.cli.listings:MethodsCommand",
        "benchmarks": "atwu.cli.listings:BenchmarksCommand",
    },
)
"""Command -> dataclass, in the order of the help; only the module of the command that runs is imported."""

RESUMABLE = frozenset(
    [
        "unlearn",
        "finetune",
        "evaluate",
        "study run",
        "tune",
        "judge agreement",
        "rows paraphrases",
        "rows labels",
        "evidence",
        "ask",
    ]
)
"""Commands that go on where they were stopped when the same line is run again."""
DISTRIBUTED = frozenset(["unlearn", "finetune"])
"""Commands that run in several processes (torchrun), and start again with --overwrite."""
_LONGEST = 600
"""Characters of an error, at most: that of a library may have pages."""
QUIET = {"TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Environment variables that silence libraries; values set by the user win."""
EXPECTED = (AtwuError, ValueError, ImportError, OSError)
"""Errors whose message is for the user; any other is a mistake of ours, and its traceback is wanted."""


def run() -> None:
    """Run the command line; failures end with one line (a traceback with ATWU_DEBUG=1) and exit code 1 or 2."""
    for name, value in QUIET.items():
        # Before transformers and huggingface_hub are imported, which read theirs once.
        os.environ.setdefault(name, value)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals without Unicode
    try:
        try:
            run_cli(sys.argv[1:])
        except SystemExit:  # after a help text
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe
        _drop_unwritten()
        sys.exit(1)
    except EXPECTED as error:
        if os.environ.get("ATWU_DEBUG"):
            raise
        _drop_unwritten()
        stand_out(f"error: {in_a_line(error)}", "red")
        # 2 as argparse exits for a wrong command line, so that scripts can tell it from a failure.
        sys.exit(2 if isinstance(error, UsageError) else 1)
    finally:
        _leave_process_group()
        # From here on there is nothing to finish: Ctrl-C may end the process at once.
        remove_handlers()
        gc.freeze()  # the interpreter's last collection would visit every object of the imported libraries, for 1.5 s


def _drop_unwritten() -> None:
    """Drop output that cannot be written: Python would try again at exit, and print a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_a_line(error: BaseException) -> str:
    message = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        message = ": ".join(map(str, filter(None, (error.strerror, error.filename))))
        if error.errno == errno.ENOSPC and not error.filename:  # of files, `explain_full_disk` says more
            message += ": cannot write the output; free some space and run the same command again."
    shown = "".join(char if char.isprintable() else "\ufffd" for char in " ".join(printable(message).split()))
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}…"
    return shown or repr(error)  # some errors of libraries have no message


def run_cli(words: Sequence[str]) -> None:
    """Run the command with the given arguments; a UsageError says which one is wrong."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # logs missing features when imported
    name, rest = _split(words)
    processes = os.environ.get("WORLD_SIZE", "1")
    if processes != "1" and name in COMMANDS.keys() - DISTRIBUTED:
        raise UsageError(
            f"{name} runs in one process and was started in {processes}; start it without torchrun or accelerate launch."
        )
    then = ""
    if name in RESUMABLE:
        then = "the same command resumes"
        if name in DISTRIBUTED and "--overwrite" in rest:
            then = "the same command starts again (--overwrite)"
        if any(word.partition("=")[0] == "--model-url" for word in rest):  # its model may change under its name
            then = "the same command asks the server again"
    set_command_name(name, then=then)
    try:
        if name in COMMANDS:
            parse_command(COMMANDS[name], rest, name=name).run()
            set_finished()
        else:
            _without_command(name, rest)
    except UsageError as error:
        command = "atwu"
        if name in COMMANDS:
            command = f"atwu {name}"
        raise UsageError(f"{error} ({command} --help)") from None


def _split(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of the command, one or two words, and its arguments."""
    # Two words first: `study run` is a command, `study` alone is not.
    for count in (2, 1):
        name = " ".join(words[:count])
        if len(words) >= count and (name in COMMANDS or (count == 1 and not name.startswith("-"))):
            return name, list(words[count:])
    return "", list(words)


def _without_command(name: str, rest: Sequence[str]) -> None:
    """Print the version or the list of commands; `name` may be the first word of several commands."""
    # Also `atwu study` alone, which is the first word of three commands.
    within = [command for command in COMMANDS if not name or command.startswith(f"{name} ")]
    if "--version" in rest and not name:
        from atwu import __version__

        print(f"atwu {__version__}")
    elif not within:
        raise UsageError(f"there is no command {name!r}.{did_you_mean(name, COMMANDS)}")
    elif rest and rest[0] not in ("--help", "-h"):
        raise UsageError(f"unknown command {rest[0]!r}; choose from {', '.join(within)}.")
    else:
        width = min(shutil.get_terminal_size().columns, 120)
        print("Usage: atwu COMMAND [OPTIONS]\n")
        print("Language-model unlearning: training, evaluation and deployment. Start with: atwu demo\n")
        for command in within:
            summary = " ".join((COMMANDS[command].__doc__ or "").split("\n\n")[0].split())
            print(textwrap.fill(summary, width, initial_indent=f"  {command:<17}", subsequent_indent=" " * 19))
        print("\nOptions and an example of each command: atwu COMMAND --help")
        if not rest:
            sys.exit(2)


def _leave_process_group() -> None:
    """Destroy the process group: its threads would abort the process at exit."""
    if "torch.distributed" in sys.modules:
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
