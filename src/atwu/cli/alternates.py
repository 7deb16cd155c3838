"""`atwu alternates build`: write false or vague answers as alternates of forget rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._files import check_writable
from atwu.cli.cli_options import cli_option
from atwu.cli.output import say
from atwu.cli.shared import ROWS_HELP, NamesRows, columns_option, open_rows, rows_option
from atwu.modeling.open_model import ModelLoadArgs


@dataclass(kw_only=True)
class AlternatesBuildCommand(NamesRows):
    """Write alternates of forget rows: plausible false answers for `--method altpo`, vague ones for `--method relearn`.

    Answers are sampled at temperature 1; those that say a key token of the row's answer are dropped. Read the file before
    training: an alternate may be odd, or a paraphrase of the true answer.

    Example: atwu alternates build --model smollm2 --forget mine.jsonl --output alternates.jsonl
    """

    model: str = cli_option("Original model: folder, Hub name, smollm2, or a .gguf file.", alias=("-m",))
    forget: str = rows_option(f"Forget rows: {ROWS_HELP}.")
    columns: str | None = columns_option()
    kind: str = cli_option(
        "Alternates to write: false, or vague ones, also for the paraphrases of a row.",
        "false",
        choices=("false", "vague"),
    )
    count: int = cli_option("Alternates per question.", 5, least=1)
    attempts: int = cli_option("Times that what a question still lacks is sampled.", 4, least=1)
    seed: int = cli_option("Seed of the samples.", 0, least=0)
    output: Path = cli_option("JSONL file to write, one row per alternate.", alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        """Sample the alternates, write them and print their number."""
        from atwu.data.row_parsing import write_rows
        from atwu.modeling.open_model import open_model
        from atwu.request.alternate_answers import alternate_answers

        check_writable(self.output, overwrite=self.overwrite)
        if self.output.suffix != ".jsonl":
            raise ValueError(f"--output must end in .jsonl, got {self.output}.")
        forget = open_rows(self.forget)
        rows = alternate_answers(
            *open_model(self.model, self.loading),
            forget,
            kind=self.kind,
            count=self.count,
            attempts=self.attempts,
            seed=self.seed,
        )
        write_rows(self.output, rows)
        lacking = [row.question for row in rows if row.alternate is None]
        say(f"{len(rows) - len(lacking)} alternates of {len(forget) - len(lacking)} rows")
        for question in lacking:
            say(f"no alternate, write one yourself: {question}")
        say(f"written: {self.output}")
