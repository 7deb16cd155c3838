"""`atwu probe`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atwu.cli import parameters as shared

if TYPE_CHECKING:
    from rich.table import Table

    from atwu.evaluation.probe import ProbeResult

SCHEMA_NAME = "atwu.probe/1"
READING = (
    "How to read it: mean ± deviation over answers; 1 ranks every secret token first, 0.5 is chance. Held-out answers are "
    "about subjects the probe was not trained on; a much higher train AUROC means it learned its rows by heart."
)


def probe(
    model: Annotated[str, typer.Option("--model", "-m", help="Model to look into: folder or Hub name.")],
    data: Annotated[
        str, typer.Option("--data", "-d", help="Rows with forget_spans: file, Hub data set or people:SIZE:SPLIT.")
    ],
    layers: Annotated[
        str, typer.Option(help="all, last, or numbers such as 0,2,4: 0 is the embeddings, -1 the final states.")
    ] = "all",
    position: Annotated[
        list[str] | None,
        typer.Option(help="State after the token (own), before it (pred) or both; repeat for several; default: all."),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts for cross-validation; a subject is in one of them.")] = 5,
    seed: Annotated[int, typer.Option(help="Decides which subjects share a part.")] = 0,
    l2: Annotated[float, typer.Option("--l2", min=0, help="Ridge penalty; larger learns less by heart.")] = 0.01,
    output: shared.Output = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first rows.")] = None,
    max_length: shared.MaxLength = 512,
    system: shared.System = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens per forward pass.")] = 4096,
    dtype: shared.Dtype = "auto",
    device: shared.Device = None,
    trust_remote_code: shared.RemoteCode = False,
    revision: shared.Revision = None,
    base: shared.Base = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Find out how well a linear layer that is shown the labels can tell secret tokens, layer by layer.

    A learned scorer is the same layer without the labels, so this is about the best it could do on these states. Each answer
    is scored by a probe that was trained on other subjects only.

    Example: atwu probe --model target --data forget.jsonl --layers last --output probe.json
    """
    from rich.console import Console

    from atwu._files import versions, write_json
    from atwu.benchmarks.sources import load_rows
    from atwu.cli.opening import warn_of_other_system
    from atwu.data.render import check_system
    from atwu.evaluation.hidden_states import POSITIONS
    from atwu.evaluation.probe import annotated_rows, check_positions
    from atwu.evaluation.probe import probe as measure
    from atwu.modeling.device import pick_device
    from atwu.modeling.fingerprint import model_fingerprint
    from atwu.modeling.load import (
        check_model_name,
        check_vocabulary,
        load_config,
        load_model,
        load_tokenizer,
        quiet_transformers,
    )

    quiet_transformers()
    numbers = parse_layers(layers)
    positions: Any = position or list(POSITIONS)
    check_positions(positions)
    shared.check_output(output, overwrite=overwrite)
    place = pick_device(device)
    check_system(system)
    check_model_name(model, base=base)
    warn_of_other_system(model, system)
    loaded = load_rows(data, limit=limit)
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    rows = annotated_rows(loaded.rows)
    if len(rows) < len(loaded.rows):
        missing = len(loaded.rows) - len(rows)
        typer.echo(f"warning: {missing} of {len(loaded.rows)} rows have no forget_spans and are left out.", err=True)
    tokenizer = load_tokenizer(model, trust_remote_code=trust_remote_code, revision=revision, base=base)
    config = load_config(model, trust_remote_code=trust_remote_code, revision=revision, base=base)
    last = int(config.get_text_config().num_hidden_layers)
    for number in numbers or ():
        if not -last - 1 <= number <= last:
            raise ValueError(f"--layers must lie between 0 (embeddings) and {last} (final states) here, got {number}.")
    check_vocabulary(tokenizer, config, name=model)
    network = load_model(model, dtype=dtype, trust_remote_code=trust_remote_code, revision=revision, base=base)
    network = network.to(place)
    start = time.perf_counter()
    results = measure(
        network,
        tokenizer,
        rows,
        layers=numbers,
        positions=positions,
        folds=folds,
        seed=seed,
        l2=l2,
        batch_tokens=batch_tokens,
        max_length=max_length,
        system=system,
    )
    if output is not None:
        record = {
            "schema": SCHEMA_NAME,
            "model": model,
            "fingerprint": model_fingerprint(network),
            "data": {"source": loaded.source, "fingerprint": loaded.fingerprint, "rows": len(loaded.rows)},
            "settings": {"folds": folds, "seed": seed, "l2": l2, "max_length": max_length, "system": system},
            "results": [_plain(result) for result in results],
            "versions": versions(),
            "seconds": round(time.perf_counter() - start, 3),
        }
        write_json(output, record)
    Console().print(probe_table(results, title=model))
    typer.echo(READING)
    if output is not None:
        typer.echo(f"written: {output}")


def parse_layers(text: str) -> list[int] | None:
    """Layer numbers as given on the command line; None for all.

    Raises:
        ValueError: neither a known word nor whole numbers.
    """
    if text == "all":
        return None
    if text == "last":
        return [-1]
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--layers must be all, last, or numbers such as 0,2,4; got {text!r}.") from None


def probe_table(results: Sequence[ProbeResult], *, title: str) -> Table:
    """One line per layer and position; the best printed held-out value is bold, ties included."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for column in ("layer", "position"):
        table.add_column(column, no_wrap=True)
    for column in ("held-out AUROC ↑", "train AUROC", "rows"):
        table.add_column(column, justify="right", no_wrap=True)
    best = max(f"{result.auroc.mean:.3f}" for result in results)
    for place, result in enumerate(results):
        mean = f"{result.auroc.mean:.3f}"
        train = "–" if result.train_auroc is None else f"{result.train_auroc:.3f}"
        table.add_row(
            *(str(result.layer), result.position, f"{mean} ± {result.auroc.std:.3f}", train, str(result.auroc.n)),
            style="bold" if mean == best else None,
            end_section=place + 1 < len(results) and results[place + 1].layer != result.layer,
        )
    return table


def _plain(result: ProbeResult) -> dict[str, Any]:
    """JSON of one result, without the values of single answers."""
    plain = dataclasses.asdict(result)
    del plain["auroc"]["values"]
    return plain
