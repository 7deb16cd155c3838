"""`atwu tokens`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atwu.cli import parameters as shared


def tokens(
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="Model: the folder of an ATWU run (with its scorer), any other, or a Hub name."
        ),
    ],
    data: Annotated[str, typer.Option("--data", "-d", help="Rows to score: file, Hub data set or people:SIZE:SPLIT.")],
    score: Annotated[
        list[str] | None,
        typer.Option(
            help="Which scores: scorer, saturation, importance, satimp, entropy, logprob_mask, nouns, labels; repeat for "
            "several. Default: all that the model allows, labels excepted."
        ),
    ] = None,
    retain: Annotated[
        str | None, typer.Option(help="Retain rows; rarity and ngram_difference compare with them.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write one self-contained HTML page.")] = None,
    rows: Annotated[int, typer.Option(min=0, help="How many rows to print.")] = 5,
    limit: Annotated[int, typer.Option(min=1, help="How many rows to score for the page.")] = 100,
    max_length: shared.MaxLength = 512,
    system: shared.System = None,
    device: shared.Device = None,
    trust_remote_code: shared.RemoteCode = False,
    base: shared.Base = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page.")] = False,
) -> None:
    """Show which words a method takes for the secret, as coloured text and as a web page.

    Words, not sub-tokens; secret words are underlined where rows carry forget_spans.

    Example: atwu tokens --model unlearned --data forget.jsonl --html tokens.html
    """
    from rich.console import Console

    from atwu.benchmarks.sources import load_rows
    from atwu.cli.opening import open_rows, warn_of_other_system
    from atwu.data.render import check_system
    from atwu.evaluation.induced import Need, check_scores
    from atwu.methods.weightings.scorer import find_scorer
    from atwu.modeling.device import pick_device
    from atwu.modeling.load import check_model_name, load_model, load_tokenizer, quiet_transformers
    from atwu.report.heatmap import render_terminal, write_html
    from atwu.report.score_rows import score_rows

    quiet_transformers()
    place = pick_device(device)
    check_system(system)
    check_model_name(model, base=base)
    warn_of_other_system(model, system)
    scorer = find_scorer(model)
    wanted = score or None
    there: set[Need] = {"scorer", "labels", "retain"} if retain else {"scorer", "labels"}
    check_scores(wanted or (), there)
    if html is not None and html.exists() and not overwrite:
        raise FileExistsError(f"{html} exists; choose another file or pass --overwrite.")
    if html is not None and not html.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {html}: folder {html.absolute().parent} does not exist.")
    if wanted and "scorer" in wanted and scorer is None:
        raise ValueError(f"{model} has no learned scorer; unlearn with an atwu method, or choose another --score.")
    loaded = load_rows(data, limit=limit if html is not None else max(rows, 1))
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    scored = score_rows(
        load_model(model, trust_remote_code=trust_remote_code, base=base).to(place),
        load_tokenizer(model, trust_remote_code=trust_remote_code, base=base),
        loaded.rows,
        scorer=scorer,
        retain=open_rows(retain),
        scores={name: name for name in wanted} if wanted else None,
        max_length=max_length,
        system=system,
        progress="score rows",
    )
    render_terminal(scored[:rows], Console())
    if html is not None:
        typer.echo(f"written: {write_html(html, scored, title=f'Token scores of {model}')}")
