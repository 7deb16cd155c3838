"""The `atwu` command: its subcommands, and errors as one readable line."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from atwu.cli import (
    compare,
    demo,
    evaluate,
    judge,
    methods,
    paraphrase,
    probe,
    report,
    study,
    tokens,
    train,
    tune,
)
from atwu.errors import AtwuError

EXPECTED = (AtwuError, ValueError, ImportError, OSError)


def build(command: str | None) -> typer.Typer:
    """Assemble the app; only the command that will run gets its full, slow to import, set of options."""
    app = typer.Typer(
        no_args_is_help=True,
        invoke_without_command=True,
        rich_markup_mode="rich",
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Make a language model forget, keep the rest, and prove both. Start with [bold]atwu demo[/bold].",
        epilog="Every command explains itself with an example: atwu COMMAND --help",
    )
    app.command("demo")(demo.demo)
    app.command("finetune")(train.finetune_command(full=command == "finetune"))
    app.command("unlearn")(train.unlearn_command(full=command == "unlearn"))
    app.command("evaluate")(evaluate.evaluate)
    app.command("compare")(compare.compare)
    app.add_typer(study.app, name="study")
    app.command("tune")(tune.tune)
    app.command("report")(report.report)
    app.add_typer(judge.app, name="judge")
    app.command("paraphrase")(paraphrase.paraphrase)
    app.command("tokens")(tokens.tokens)
    app.command("probe")(probe.probe)
    app.command("methods")(methods.methods)

    @app.callback()
    def common(
        version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
    ) -> None:
        if version:
            from atwu import __version__

            typer.echo(f"atwu {__version__}")
            raise typer.Exit

    return app


def run() -> None:
    """Run the command line; expected failures end with one line and exit code 1.

    Set ATWU_DEBUG=1 to see where an error came from.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    try:
        build(command)()
    except EXPECTED as error:
        if os.environ.get("ATWU_DEBUG"):
            raise
        message = str(error)
        if isinstance(error, OSError) and error.errno is not None:
            message = f"{error.strerror}: {error.filename}"
        typer.secho(f"error: {message or repr(error)}", fg=typer.colors.RED, err=True)
        sys.exit(1)
    finally:
        _leave_process_group()


def _leave_process_group() -> None:
    """Left to the interpreter's exit, threads of a process group that still runs abort the process."""
    if "torch.distributed" in sys.modules:
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
