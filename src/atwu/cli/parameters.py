"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Dtype = Annotated[str, typer.Option(help="Load weights as auto, float32, bfloat16 or float16.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps; default: the best there is.")]
RemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run the checkpoint's code.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hub model.")]
Base = Annotated[str | None, typer.Option(help="Base model of an adapter folder, if not the one it names.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is at --output.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the result as JSON.")]
MaxLength = Annotated[int, typer.Option(min=8, help="Longest row in tokens.")]
System = Annotated[
    str | None,
    typer.Option(help="System turn put before conversations that have none, as the model was trained with."),
]

JudgeName = Annotated[
    str,
    typer.Option(
        "--judge",
        help="offline (rules, no model), openai:MODEL (any OpenAI-compatible server), or local:FOLDER.",
        rich_help_panel="Judge",
    ),
]
JudgeUrl = Annotated[
    str | None,
    typer.Option(help="Address of the server, such as http://localhost:8000/v1.", rich_help_panel="Judge"),
]
JudgeKey = Annotated[
    str, typer.Option(help="Environment variable that holds the key of the server.", rich_help_panel="Judge")
]
JudgePrice = Annotated[
    str | None,
    typer.Option(help="USD per million input,output tokens, such as 0.25,2.", rich_help_panel="Judge"),
]
MaxCost = Annotated[
    float | None, typer.Option(min=0, help="Stop before more than this many USD are spent.", rich_help_panel="Judge")
]
Concurrency = Annotated[int, typer.Option(min=1, help="Calls in flight at once.", rich_help_panel="Judge")]
JudgeTimeout = Annotated[
    float,
    typer.Option(min=1, help="Seconds a call may take, from sending to the end of its reply.", rich_help_panel="Judge"),
]
JudgeReply = Annotated[
    int | None,
    typer.Option(
        min=1, help="Cap on the judge's reply in tokens; a reasoning model needs thousands.", rich_help_panel="Judge"
    ),
]
EstimateOnly = Annotated[
    bool,
    typer.Option(
        "--estimate", help="Print calls, tokens and price, and stop before any is sent.", rich_help_panel="Judge"
    ),
]


def check_output(output: Path | None, *, overwrite: bool) -> None:
    """Check that a result can be written, before anything is computed.

    Raises:
        FileExistsError: it is there and may not be replaced.
        FileNotFoundError: its folder is not there.
    """
    if output is None:
        return
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists; choose another output or pass --overwrite.")
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {output}: folder {output.absolute().parent} does not exist.")
