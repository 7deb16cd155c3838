"""`atwu paraphrase`: paraphrase the questions of rows with a chat model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu.cli.cli_options import cli_option
from atwu.cli.output import say
from atwu.cli.shared import ROWS_HELP, NamesRows, check_rows_file, columns_option, open_rows, rows_option
from atwu.judge.open_judge import EstimatedJudgeOptions


@dataclass(frozen=True, kw_only=True)
class Paraphraser(EstimatedJudgeOptions):
    """Judge options of paraphrasing, which needs a model."""

    judge: str = cli_option("openai:MODEL (any OpenAI-compatible server), or local:FOLDER.", group="Judge")


@dataclass(kw_only=True)
class ParaphraseCommand(NamesRows):
    """Paraphrase each question with a language model, and keep the paraphrases that pass the checks.

    A paraphrase is dropped if it reveals the answer, loses a name or number of the question, or repeats another one.
    Create paraphrases once and keep the file: scores over paraphrases are comparable only on the same paraphrases.

    Example: atwu paraphrase --data forget.jsonl --judge openai:my-model --count 5 --output forget-paraphrased.jsonl
    """

    data: str = rows_option(f"Rows to paraphrase: {ROWS_HELP}.", alias=("-d",))
    columns: str | None = columns_option()
    output: Path = cli_option("Output JSONL: the rows with their paraphrases.", alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)
    count: int = cli_option("Paraphrases per question.", 5, least=1)
    check_meaning: bool = cli_option("Ask the model whether each paraphrase has the meaning of the question.", True)
    limit: int | None = cli_option("Maximum number of rows, evenly spaced. Default: all rows.", None, least=1)
    judging: Paraphraser

    def run(self) -> None:
        from atwu.data.row_parsing import write_rows
        from atwu.judge.open_judge import open_asker
        from atwu.judge.paraphrasing import estimate_paraphrases, write_paraphrases

        check_rows_file(self.output, overwrite=self.overwrite)
        asker = open_asker(self.judging, what="model")
        rows = open_rows(self.data, limit=self.limit)
        if self.judging.estimate:
            estimate = estimate_paraphrases(rows, asker, count=self.count, check_meaning=self.check_meaning)
            say(f"{self.judging.judge}: {estimate}")
            return
        paraphrased = write_paraphrases(rows, asker, count=self.count, check_meaning=self.check_meaning)
        write_rows(self.output, paraphrased.rows)
        say(paraphrased)
        say(f"written: {self.output}")
