"""`atwu report`: tables, figures and pages of finished runs, and of several studies."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atwu._files import check_output_folder, check_writable, write_json, write_text
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import say, terminal
from atwu.errors import UsageError

if TYPE_CHECKING:
    from atwu.report.report_records import Records

_ENDINGS = {"html": ".html", "md": ".md", "latex": ".tex", "csv": ".csv", "json": ".json"}
_FORMATS = {ending: form for form, ending in _ENDINGS.items()} | {".htm": "html"}


@dataclass(kw_only=True)
class ReportCommand:
    """Write a report page, tables or figures of finished runs.

    Prints the table unless --output or --figures is given. The page is a single file that works offline. With a folder as
    --output, studies of several benchmarks and models come onto one page, index.html, with their numbers in board.json, which
    is itself a study that can be given.

    Example: atwu report runs/headline-people-small --output report.html
    Example: atwu report runs/headline-people-small runs/headline-tofu-part --output board
    """

    runs: list[Path] = cli_option(
        "Study folders, run folders with an eval.json, or result files of atwu evaluate; for a folder as --output, study "
        "folders, folders of results with a board.yaml, or board.json files.",
        positional=True,
    )
    output: Path | None = cli_option(
        "File to write, whose suffix determines the format; or a folder, for several studies.", None, alias=("-o",)
    )
    overwrite: bool = cli_option("Replace --output if it exists.", False)
    form: list[str] | None = cli_option(
        "Format, instead of the suffix of --output; repeatable.", None, flag="format", choices=tuple(_ENDINGS)
    )
    figures: Path | None = cli_option("Folder for figures as PDF and SVG.", None)
    title: str | None = cli_option("Title of the report; default: the study's.", None)
    focus: str = cli_option("Method to highlight in figures and on the page.", "atwu")

    def run(self) -> None:
        from atwu.report.read_records import read_records

        forms = list(dict.fromkeys(self.form or ()))
        if self.output is None and "html" in forms:
            raise UsageError("format html needs a file: --output report.html.")
        if self.output is not None and not forms:
            ending = self.output.suffix.lower()
            if not ending and self.figures is None and self.title is None:
                self._write_board(self.output)
                return
            if ending not in _FORMATS:
                raise UsageError(
                    f"--output must end in one of {', '.join(_FORMATS)}, be a folder (without --figures and --title), or be "
                    f"combined with --format; got {self.output.name!r}."
                )
            forms = [_FORMATS[ending]]
        if self.figures is not None:
            check_output_folder(self.figures)
        records = read_records(self.runs, title=self.title)
        if not records.runs:
            raise UsageError("the given runs contain reference models only, and no unlearned model.")
        if self.focus not in records.labels and self.focus != "atwu":
            raise UsageError(f"--focus must be one of {', '.join(records.labels)}; got {self.focus!r}.")
        if self.output is not None:
            several = len(forms) > 1
            paths = {form: self.output.with_suffix(_ENDINGS[form]) if several else self.output for form in forms}
            for path in paths.values():
                check_output_folder(path.parent)
                path.parent.mkdir(parents=True, exist_ok=True)
                check_writable(path, overwrite=self.overwrite)
            for form, path in paths.items():
                write_text(path, self._text(records, form))
                say(f"wrote {path}")
        elif forms:
            for form in forms:
                say(self._text(records, form).rstrip("\n"))
        elif self.figures is None:
            from atwu.report.terminal_tables import headline_table

            terminal().print(headline_table(records))
        if self.figures is not None:
            from atwu.report.figures import save_figures

            for path in save_figures(records, self.figures, focus=self.focus):
                say(f"wrote {path}")

    def _write_board(self, folder: Path) -> None:
        from atwu.report.board import BOARD_NAME, read_board, render_board

        check_output_folder(folder)
        board = read_board(self.runs)
        folder.mkdir(parents=True, exist_ok=True)
        page, numbers = folder / "index.html", folder / BOARD_NAME
        for path in (page, numbers):
            check_writable(path, overwrite=self.overwrite)
        write_text(page, render_board(board))
        write_json(numbers, board.to_json())
        count = len(board.studies)
        say(f"wrote {page} and {numbers}: {count} {'study' if count == 1 else 'studies'}")

    def _text(self, records: Records, form: str) -> str:
        if form == "html":
            from atwu.report.page.report_page import render_report_page

            return render_report_page(records, command=shlex.join(["atwu", *sys.argv[1:]]), focus=self.focus)
        from atwu.report.export_formats import WRITERS

        return WRITERS[form](records)
