"""`atwu retain build`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._files import check_writable
from atwu.cli.options import option
from atwu.cli.output import say
from atwu.cli.shared import ROWS, open_rows
from atwu.modeling.opening import Loading


@dataclass(kw_only=True)
class Build:
    """Build rows to keep for a model that shall forget: neighbours from a corpus of yours, and its own general answers.

    Neighbours are the rows closest in topic that name no subject to forget; nothing repeats a row to forget. The general
    questions are shipped, the answers are the model's own, right or wrong: they are what it says today.

    Example: atwu retain build --model smollm2 --forget mine.jsonl --corpus faq.jsonl --output retain.jsonl
    """

    model: str = option("Model that shall forget: folder, Hub name, smollm2, or a .gguf file.", alias=("-m",))
    forget: str = option(f"Rows to forget: {ROWS}.")
    corpus: str | None = option(f"Rows to take neighbours from: {ROWS}.", None)
    count: int = option("Most neighbours.", 200, least=1)
    output: Path = option("JSONL to write.", alias=("-o",))
    overwrite: bool = option("Replace what is at --output.", False)
    system: str | None = option("System turn put before conversations, as the model was trained with.", None)
    loading: Loading = option("", group="Loading the model", common=False)

    def run(self) -> None:
        """Build, write, say what is in it."""
        from atwu.data.rows import write_rows
        from atwu.modeling.opening import open_model
        from atwu.request.retain import build_retain

        check_writable(self.output, overwrite=self.overwrite)
        if self.output.suffix != ".jsonl":
            raise ValueError(f"--output must end in .jsonl, got {self.output}.")
        forget, corpus = open_rows(self.forget), open_rows(self.corpus)
        built = build_retain(
            *open_model(self.model, self.loading), forget, corpus=corpus, count=self.count, system=self.system
        )
        write_rows(self.output, built.rows)
        for name, number in built.table():
            say(f"{name:<58}{number:>6}")
        say(f"written: {self.output}")
