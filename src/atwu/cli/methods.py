"""`atwu methods`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

_SYMBOLS = {"forget_weight": "γ", "retain_weight": "α", "beta": "β", "beta1": "β1", "beta2": "β2", "temperature": "τ"}


def methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List every method, and the parts they are made of.

    Example: atwu methods --json
    """
    if as_json:
        typer.echo(json.dumps(_as_plain(), indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    from atwu.methods import FORGET_LOSSES, HYPERPARAMETERS, METHODS, RETAIN_LOSSES, WEIGHTINGS, recipe

    console = Console()
    listed = Table("method", "weighting", "forget loss", "retain", "defaults", "source", title="Methods", box=None)
    for name, row in METHODS.items():
        numbers = " ".join(f"{_SYMBOLS[key]}={value:g}" for key, value in recipe(name).values.items())
        numbers += " *" if row.borrowed else ""
        listed.add_row(f"[bold]{name}[/bold]", row.weighting, row.forget_loss, row.retain_loss, numbers, row.cite)
    console.print(listed)
    console.print(
        "γ forget-weight, α retain-weight, β beta: published values, used unless given; * borrowed from a relative\n",
        style="dim",
    )
    parts = Table("flag", "name", "weight or loss of a token", title="Parts, to combine freely", box=None)
    for name, weighting in WEIGHTINGS.items():
        parts.add_row("--weighting", name, weighting.summary)
    for name, loss in FORGET_LOSSES.items():
        parts.add_row("--forget-loss", name, loss.summary)
    for name, summary in RETAIN_LOSSES.items():
        parts.add_row("--retain-loss", name, summary)
    for name, number in HYPERPARAMETERS.items():
        parts.add_row(f"--{name.replace('_', '-')}", f"{number.search[0]:g} to {number.search[1]:g}", number.help)
    console.print(parts)


def _as_plain() -> dict[str, Any]:
    from atwu.methods import METHODS, recipe

    return {
        name: {
            "title": row.title,
            "weighting": row.weighting,
            "forget_loss": row.forget_loss,
            "retain_loss": row.retain_loss,
            "cite": row.cite,
            "needs": [
                need
                for need, needed in (
                    ("retain", row.needs_retain),
                    ("labels", row.needs_labels),
                    ("scorer", row.needs_scorer),
                )
                if needed
            ],
            "hyperparameters": dict(recipe(name).values),
            "borrowed": row.borrowed,
        }
        for name, row in METHODS.items()
    }
