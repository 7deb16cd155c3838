"""`atwu annotate`: label the words of answers that carry the fact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from atwu.cli.cli_options import cli_option
from atwu.cli.output import say
from atwu.cli.shared import ROWS_HELP, NamesRows, check_rows_file, columns_option, open_rows, rows_option
from atwu.judge.open_judge import EstimatedJudgeOptions

if TYPE_CHECKING:
    from atwu.data.schema import Example, Span
    from atwu.judge.annotation import AnnotatedRows

PREVIEW_ROWS = 3


@dataclass(frozen=True, kw_only=True)
class Annotator(EstimatedJudgeOptions):
    """Judge options, with the rule for annotation."""

    judge: str = cli_option(
        "offline (a rule: names and numbers that are not in the question), openai:MODEL (any OpenAI-compatible server), "
        "or local:FOLDER (a transformers model).",
        "offline",
        group="Judge",
    )


@dataclass(kw_only=True)
class AnnotateCommand(NamesRows):
    """Label the words of each answer that carry its fact (column forget_spans), for methods that need labels.

    A model names the parts of an answer that cannot be guessed from the question; parts that are not in the answer are
    dropped. The offline rule needs no model but is less accurate. Existing labels are kept. Check the labels before
    training on them.

    Example: atwu annotate --data forget.jsonl --judge openai:my-model --output labelled.jsonl
    """

    data: str = rows_option(f"Rows to annotate: {ROWS_HELP}.", alias=("-d",))
    columns: str | None = columns_option()
    output: Path = cli_option("Output JSONL: the rows with forget_spans.", alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)
    limit: int | None = cli_option("Maximum number of rows, evenly spaced. Default: all rows.", None, least=1)
    judging: Annotator

    def run(self) -> None:
        from atwu.data.row_parsing import write_rows

        check_rows_file(self.output, overwrite=self.overwrite)
        annotated = self._annotate()
        if annotated is None:
            return
        write_rows(self.output, annotated.rows)
        for row in annotated.rows[:PREVIEW_ROWS]:
            say(f"  {row.question} {_marked(row)}".rstrip())
        say(annotated)
        say(f"written: {self.output}; next: atwu unlearn --method gt_satga --forget {self.output} ...")

    def _annotate(self) -> AnnotatedRows | None:
        """Annotate the rows; None if only the cost estimate is wanted."""
        from atwu.judge.annotation import annotate_by_rule, annotate_rows, estimate_annotation
        from atwu.judge.open_judge import check_offline, open_asker

        if self.judging.judge == "offline":
            check_offline(self.judging)
            if self.judging.estimate:
                say("offline: nothing to send")
                return None
            return annotate_by_rule(open_rows(self.data, limit=self.limit), _rule_spans)
        asker = open_asker(self.judging, what="annotator")
        rows = open_rows(self.data, limit=self.limit)
        if self.judging.estimate:
            say(f"{self.judging.judge}: {estimate_annotation(rows, asker)}")
            return None
        return annotate_rows(rows, asker)


def _rule_spans(row: Example) -> tuple[Span, ...]:
    from atwu.data.key_token_spans import key_token_spans

    return key_token_spans(replace(row, forget_spans=None))


def _marked(row: Example) -> str:
    """Return the answer with its labelled words in brackets."""
    text = row.answer
    for start, end in reversed(row.forget_spans or ()):
        text = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    return text
