"""`atwu forms build`: write rows in several forms of their question."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu.cli.cli_options import cli_option
from atwu.cli.output import say
from atwu.cli.shared import ROWS_HELP, NamesRows, check_rows_file, columns_option, open_rows, rows_option


@dataclass(kw_only=True)
class FormsBuildCommand(NamesRows):
    """Write rows in several forms of their question: blanks, completions, multiple choice, role play and more.

    `atwu unlearn --forms auto` trains on such rows without this command; use it to read them, or to edit them before training.
    The forms are written by rule, without a model.

    Example: atwu forms build --data forget.jsonl --output forms.jsonl
    """

    data: str = rows_option(f"Rows to write: {ROWS_HELP}.", alias=("-d",))
    columns: str | None = columns_option()
    forms: str = cli_option(
        "Forms: auto (those that atwu unlearn trains on), all, or names such as question,blank.", "auto"
    )
    output: Path = cli_option("JSONL file to write.", alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)

    def run(self) -> None:
        from collections import Counter

        from atwu.data.question_forms import FORMS, read_forms, rows_in_forms
        from atwu.data.row_parsing import write_rows

        check_rows_file(self.output, overwrite=self.overwrite)
        forms = tuple(FORMS) if self.forms == "all" else read_forms(self.forms)
        if not forms:
            raise ValueError("--forms none writes nothing; give auto, all, or names such as question,blank.")
        written = rows_in_forms(open_rows(self.data), forms)
        write_rows(self.output, [each.row for each in written])
        for form, number in Counter(each.form for each in written).items():
            say(f"{form:<18}{number:>6}")
        say(f"written: {self.output}")
