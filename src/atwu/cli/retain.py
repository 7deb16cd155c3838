"""`atwu retain build`: build a retain set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu.cli.cli_options import cli_option
from atwu.cli.output import say
from atwu.cli.shared import ROWS_HELP, NamesRows, check_rows_file, columns_option, open_rows, rows_option
from atwu.modeling.open_model import ModelLoadArgs


@dataclass(kw_only=True)
class RetainBuildCommand(NamesRows):
    """Build a retain set: neighbours from a corpus, and self-generated answers of the model to general questions.

    Neighbours are the corpus rows closest to the forget rows in topic that name none of their subjects and repeat none of them.
    Questions are shipped; answers are those of the model, whether right or wrong.

    Example: atwu retain build --model smollm2 --forget mine.jsonl --corpus faq.jsonl --output retain.jsonl
    """

    model: str = cli_option("Original model: folder, Hub name, smollm2, or a .gguf file.", alias=("-m",))
    forget: str = rows_option(f"Forget rows: {ROWS_HELP}.")
    corpus: str | None = rows_option(f"Corpus to select neighbours from: {ROWS_HELP}. Default: no neighbours.", None)
    columns: str | None = columns_option()
    count: int = cli_option("Maximum number of neighbours.", 200, least=1)
    output: Path = cli_option("JSONL file to write.", alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)
    system: str | None = cli_option("System prompt that the model was trained with.", None)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        from atwu.data.row_parsing import write_rows
        from atwu.modeling.open_model import open_model
        from atwu.request.retain_set import build_retain

        check_rows_file(self.output, overwrite=self.overwrite)
        forget, corpus = open_rows(self.forget), open_rows(self.corpus)
        built = build_retain(
            *open_model(self.model, self.loading), forget, corpus=corpus, count=self.count, system=self.system
        )
        write_rows(self.output, built.rows)
        for name, number in built.table():
            say(f"{name:<58}{number:>6}")
        say(f"written: {self.output}")
