"""`atwu annotate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from atwu._files import check_writable
from atwu.cli.cli_options import cli_option
from atwu.cli.output import say
from atwu.cli.shared import ROWS_HELP, open_rows
from atwu.judge.open_judge import EstimatedJudgeOptions

if TYPE_CHECKING:
    from atwu.data.schema import Example, Span
    from atwu.judge.annotation import AnnotatedRows

PREVIEW_ROWS = 3
"""Rows that are printed with their marks."""


@dataclass(frozen=True, kw_only=True)
class Annotator(EstimatedJudgeOptions):
    """Who marks."""

    judge: str = cli_option(
        "offline (a rule: names and numbers that the question does not say), openai:MODEL (any OpenAI-compatible server), or "
        "local:FOLDER.",
        "offline",
        group="Judge",
    )


@dataclass(kw_only=True)
class AnnotateCommand:
    """Mark the secret words of every answer, as the methods with labels (gt_satga) train on them.

    A model is asked for the pieces of an answer that nobody could guess who knows the question alone; pieces that the answer
    does not say are left out. The rule needs no model and is worse. Rows that have labels keep them. Read what was marked
    before you train on it.

    Example: atwu annotate --data forget.jsonl --judge openai:my-model --output labelled.jsonl
    """

    data: str = cli_option(f"Rows to mark: {ROWS_HELP}.", alias=("-d",))
    output: Path = cli_option("JSONL to write: the rows with forget_spans.", alias=("-o",))
    overwrite: bool = cli_option("Replace what is at --output.", False)
    limit: int | None = cli_option("At most this many rows, evenly spaced.", None, least=1)
    judging: Annotator

    def run(self) -> None:
        """Mark, show some, write."""
        from atwu.data.row_parsing import write_rows

        check_writable(self.output, overwrite=self.overwrite)
        if self.output.suffix != ".jsonl":
            raise ValueError(f"--output must end in .jsonl, got {self.output}.")
        found = self._found()
        if found is None:
            return
        write_rows(self.output, found.rows)
        for row in found.rows[:PREVIEW_ROWS]:
            say(f"  {row.question} {_marked(row)}".rstrip())
        say(found)
        say(f"written: {self.output}; next: atwu unlearn --method gt_satga --forget {self.output} ...")

    def _found(self) -> AnnotatedRows | None:
        """None where only the price was asked for."""
        from atwu.judge.annotation import annotate_by_rule, annotate_rows, estimate_annotation
        from atwu.judge.open_judge import check_offline, open_asker

        if self.judging.judge == "offline":
            check_offline(self.judging)
            if self.judging.estimate:
                say("offline: nothing to send")
                return None
            return annotate_by_rule(open_rows(self.data, limit=self.limit), _telling)
        asker = open_asker(self.judging, what="annotator")
        rows = open_rows(self.data, limit=self.limit)
        if self.judging.estimate:
            say(f"{self.judging.judge}: {estimate_annotation(rows, asker)}")
            return None
        return annotate_rows(rows, asker)


def _telling(row: Example) -> tuple[Span, ...]:
    from atwu.evaluation.metrics.key_tokens import key_token_spans

    return key_token_spans(replace(row, forget_spans=None))


def _marked(row: Example) -> str:
    """The answer with its secret words in brackets."""
    text = row.answer
    for start, end in reversed(row.forget_spans or ()):
        text = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    return text
