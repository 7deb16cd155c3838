"""`atwu evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    model: Annotated[
        str, typer.Option("--model", "-m", help="Model to measure: folder (of an adapter, too) or Hub name.")
    ],
    forget: Annotated[
        str | None, typer.Option(help="Rows that should be gone: file, Hub data set or people:SIZE:SPLIT.")
    ] = None,
    retain: Annotated[str | None, typer.Option(help="Rows that should be there, same kinds.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the result as JSON.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first rows of each set.")] = None,
    rouge: Annotated[bool, typer.Option(help="Generate answers for ROUGE-L recall (slow).")] = True,
    max_length: Annotated[int, typer.Option(min=8, help="Longest row in tokens.")] = 512,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Cap on generated tokens.")] = 64,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens per forward pass.")] = 4096,
    dtype: Annotated[str, typer.Option(help="Load weights as auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps; default: the best there is.")] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the checkpoint's code.")] = False,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hub model.")] = None,
    base: Annotated[str | None, typer.Option(help="Base model of an adapter folder, if not the one it names.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --output.")] = False,
) -> None:
    """Measure what a model still knows of forget rows and what it kept of retain rows.

    Extraction strength (exact and floored), exact memorization, probability, ROUGE-L recall, and where rows carry forget_spans
    the AUROC of token scores.

    Example: atwu evaluate --model unlearned --forget forget.jsonl --retain retain.jsonl --output eval.json
    """
    from rich.console import Console

    from atwu.data.sources import load_rows
    from atwu.evaluation.run import evaluate as measure
    from atwu.modeling.device import pick_device
    from atwu.modeling.load import (
        check_model_name,
        check_vocabulary,
        load_config,
        load_model,
        load_tokenizer,
        quiet_transformers,
    )
    from atwu.report.tables import evaluation_table
    from atwu.weighting.scorer import find_scorer

    quiet_transformers()
    if forget is None and retain is None:
        raise typer.BadParameter("give --forget, --retain or both.")
    if output is not None:
        if output.exists() and not overwrite:
            raise FileExistsError(f"{output} exists; choose another output or pass --overwrite.")
        if not output.absolute().parent.is_dir():
            raise FileNotFoundError(f"cannot write {output}: folder {output.absolute().parent} does not exist.")
    place = pick_device(device)
    check_model_name(model, base=base)
    loaded = {
        name: load_rows(source, limit=limit) for name, source in (("forget", forget), ("retain", retain)) if source
    }
    for rows in loaded.values():
        for warning in rows.warnings:
            typer.echo(f"warning: {warning}", err=True)
    tokenizer = load_tokenizer(model, trust_remote_code=trust_remote_code, revision=revision, base=base)
    config = load_config(model, trust_remote_code=trust_remote_code, revision=revision, base=base)
    check_vocabulary(tokenizer, config, name=model)
    network = load_model(model, dtype=dtype, trust_remote_code=trust_remote_code, revision=revision, base=base)
    network = network.to(place)
    result = measure(
        network,
        tokenizer,
        forget=loaded["forget"].rows if "forget" in loaded else (),
        retain=loaded["retain"].rows if "retain" in loaded else (),
        scorer=find_scorer(model),
        rouge=rouge,
        max_length=max_length,
        max_new_tokens=max_new_tokens,
        batch_tokens=batch_tokens,
        name=model,
    )
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if output is not None:
        result.write(output)
    Console().print(evaluation_table(result))
    if output is not None:
        typer.echo(f"written: {output}")
