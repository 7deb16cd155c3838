"""`atwu judge`: how far a judge can be trusted, and a way to ask one about answers made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atwu.cli import parameters as shared

if TYPE_CHECKING:
    from atwu.judge.agreement import Agreement

app = typer.Typer(no_args_is_help=True, help="Measure how far a judge can be trusted.")

SCHEMA_NAME = "atwu.agreement/1"


@app.command("agreement")
def agreement(
    cases: Annotated[
        Path | None,
        typer.Option(
            "--data",
            "-d",
            help="JSONL with question, reference, answer, label (and facts, kind, split); default: the labelled cases "
            "that come with the package.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="dev or test. Default: test for the shipped cases, whose dev half the rules were tuned on."),
    ] = None,
    judge: shared.JudgeName = "offline",
    against: Annotated[
        str | None,
        typer.Option(help="Compare with this second judge instead of with the labels.", rich_help_panel="Judge"),
    ] = None,
    judge_url: shared.JudgeUrl = None,
    judge_key: shared.JudgeKey = "OPENAI_API_KEY",
    judge_price: shared.JudgePrice = None,
    max_cost: shared.MaxCost = None,
    judge_concurrency: shared.Concurrency = 8,
    judge_timeout: shared.JudgeTimeout = 60,
    judge_reply_tokens: shared.JudgeReply = None,
    estimate: shared.EstimateOnly = False,
    show_errors: Annotated[int, typer.Option(min=0, help="Print this many disagreements.")] = 5,
    output: shared.Output = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Compare a judge with human labels, or with another judge: accuracy, kappa, false positives and negatives.

    Do this with a hundred answers of your own before you believe a judge.

    Example: atwu judge agreement --judge openai:my-model --judge-url http://localhost:8000/v1 --data labelled.jsonl
    """
    from rich.console import Console

    from atwu._files import versions, write_json
    from atwu.cli.opening import JudgeOptions, open_judge
    from atwu.judge.agreement import agreement as measure
    from atwu.judge.agreement import agreement_between
    from atwu.judge.cases import load_cases
    from atwu.judge.prompted import PromptedJudge

    shared.check_output(output, overwrite=overwrite)
    if split not in (None, "dev", "test"):
        raise typer.BadParameter(f"--split must be dev or test, got {split!r}.")
    if cases is None and split is None:
        split = "test"
    loaded = load_cases(split, path=cases)  # type: ignore[arg-type]
    if not loaded:
        raise ValueError(f"no case in the split {split!r}; leave --split out to use all.")
    claims = [case.claim for case in loaded]
    asking = JudgeOptions(
        judge_url, judge_key, judge_price, max_cost, judge_concurrency, judge_timeout, judge_reply_tokens
    )
    paid = against is not None and against != "offline"
    asked = open_judge(judge, JudgeOptions() if judge == "offline" and paid else asking)
    other = None if against is None else open_judge(against, asking if paid else JudgeOptions())
    if isinstance(asked, PromptedJudge) and isinstance(other, PromptedJudge):
        other.asker.budget = asked.asker.budget  # one limit for both
    if estimate:
        for name, one in ((judge, asked), (against, other)):
            counted = getattr(one, "estimate", None)
            if one is not None:
                typer.echo(f"{name}: {counted(claims) if counted else 'judged offline at no cost'}")
        return
    verdicts = asked.judge(claims)
    if other is None:
        labels = [case.label for case in loaded]
        found = measure(labels, verdicts, kinds=[case.kind for case in loaded])
        expected = labels
    else:
        second = other.judge(claims)
        found = agreement_between(second, verdicts, kinds=[case.kind for case in loaded])
        expected = [verdict.correct for verdict in second]  # type: ignore[misc]
    if output is not None:
        import dataclasses

        identities = {"judge": dict(asked.identity), "against": "labels" if other is None else dict(other.identity)}
        write_json(
            output,
            {"schema": SCHEMA_NAME, **identities, **dataclasses.asdict(found), "versions": versions()},
        )
    Console().print(_table(found, judge=judge, against=against or "labels"))
    wrong = [
        (case, verdict)
        for case, verdict, label in zip(loaded, verdicts, expected, strict=True)
        if verdict.correct is not None and label is not None and verdict.correct != label
    ]
    for case, verdict in wrong[:show_errors]:
        typer.echo(f"\n{case.claim.question}\n  reference: {case.claim.reference}\n  answer:    {case.claim.answer}")
        typer.echo(f"  {judge} says {'yes' if verdict.correct else 'no'} ({verdict.reason})")
    if len(wrong) > show_errors:
        typer.echo(f"\n... and {len(wrong) - show_errors} more disagreements (--show-errors)")
    if output is not None:
        typer.echo(f"written: {output}")


def _table(found: Agreement, *, judge: str, against: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"{judge} against {against}"), title_justify="left")
    for column in ("cases", "n", "unscored", "accuracy", "kappa", "false yes", "false no"):
        table.add_column(column, justify="left" if column == "cases" else "right")

    def line(name: str, part: Agreement, *, interval: bool) -> None:
        accuracy = "–" if part.accuracy is None else f"{part.accuracy:.3f}"
        if interval and part.interval is not None:
            low, high = part.interval
            accuracy += f" [{low:.3f}, {high:.3f}]"
        table.add_row(
            name,
            str(part.n),
            str(part.unscored),
            accuracy,
            f"{part.kappa:.3f}" if interval and part.kappa is not None else "",
            str(part.false_positives),
            str(part.false_negatives),
        )

    line("all", found, interval=True)
    table.add_section()
    for kind, part in found.kinds.items():
        line(kind, part, interval=False)
    return table
