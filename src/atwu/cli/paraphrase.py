"""`atwu paraphrase`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atwu.cli import parameters as shared


def paraphrase(
    data: Annotated[str, typer.Option("--data", "-d", help="Rows to reword: file, Hub data set or people:SIZE:SPLIT.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="JSONL to write: the rows with their paraphrases.")],
    judge: shared.JudgeName,
    count: Annotated[int, typer.Option(min=1, help="Wordings per question.")] = 5,
    check_meaning: Annotated[bool, typer.Option(help="Ask the model whether each wording asks the same.")] = True,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows, evenly spaced.")] = None,
    judge_url: shared.JudgeUrl = None,
    judge_key: shared.JudgeKey = "OPENAI_API_KEY",
    judge_price: shared.JudgePrice = None,
    max_cost: shared.MaxCost = None,
    judge_concurrency: shared.Concurrency = 8,
    judge_timeout: shared.JudgeTimeout = 60,
    judge_reply_tokens: shared.JudgeReply = None,
    estimate: shared.EstimateOnly = False,
    overwrite: shared.Overwrite = False,
) -> None:
    """Have a language model write other wordings of every question, and keep those that pass the checks.

    A wording is dropped when it gives the answer away, loses a name or number of the question, or repeats another one. Make
    them once and keep the file: scores over paraphrases are only comparable on the same wordings.

    Example: atwu paraphrase --data forget.jsonl --judge openai:my-model --count 5 --output forget-paraphrased.jsonl
    """
    from atwu.cli.opening import JudgeOptions, open_asker, open_rows
    from atwu.data.rows import write_rows
    from atwu.judge.paraphrase import estimate_paraphrases, paraphrases

    shared.check_output(output, overwrite=overwrite)
    if output.suffix != ".jsonl":
        raise ValueError(f"--output must end in .jsonl, got {output}.")
    asking = JudgeOptions(
        judge_url, judge_key, judge_price, max_cost, judge_concurrency, judge_timeout, judge_reply_tokens
    )
    asker = open_asker(judge, asking, what="model")
    rows = open_rows(data, limit=limit)
    if estimate:
        typer.echo(f"{judge}: {estimate_paraphrases(rows, asker, count=count, check_meaning=check_meaning)}")
        return
    found = paraphrases(rows, asker, count=count, check_meaning=check_meaning)
    write_rows(output, found.rows)
    typer.echo(str(found.report))
    typer.echo(f"written: {output}")
