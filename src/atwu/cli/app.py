"""The `atwu` command: its subcommands, and errors as one readable line."""

from __future__ import annotations

import os
import sys

import typer

from atwu.cli import demo, evaluate, methods, tokens, train

EXPECTED = (ValueError, FileNotFoundError, FileExistsError, PermissionError, ImportError, OSError)


def build(command: str | None) -> typer.Typer:
    """Assemble the app; only the command that will run gets its full, slow to import, set of options."""
    app = typer.Typer(
        no_args_is_help=True,
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
    app.command("tokens")(tokens.tokens)
    app.command("methods")(methods.methods)
    return app


def run() -> None:
    """Run the command line; expected failures end with one line and exit code 1."""
    from atwu.training.errors import NonFiniteLossError

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    try:
        build(command)()
    except (*EXPECTED, NonFiniteLossError) as error:
        if os.environ.get("ATWU_DEBUG"):
            raise
        message = (
            str(error)
            if not isinstance(error, OSError) or error.errno is None
            else f"{error.strerror}: {error.filename}"
        )
        typer.secho(f"error: {message or error!r}", fg=typer.colors.RED, err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.secho("stopped; the same command continues from the last checkpoint.", fg=typer.colors.YELLOW, err=True)
        sys.exit(130)
