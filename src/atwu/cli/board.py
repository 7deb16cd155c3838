"""`atwu board build`: one page of results from several studies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._files import check_writable, write_json, write_text
from atwu.cli.cli_options import cli_option
from atwu.cli.output import say


@dataclass(kw_only=True)
class BoardBuildCommand:
    """Write a page that compares methods on several benchmarks and models, and its numbers as board.json.

    A board.json is also a submission to another board.

    Example: atwu board build runs/headline-people-small --output board
    """

    results: list[Path] = cli_option(
        "Study folders, folders of results with a board.yaml, or board.json files.", positional=True
    )
    output: Path = cli_option("Folder for index.html and board.json.", alias=("-o",))
    overwrite: bool = cli_option("Replace a board in --output.", False)

    def run(self) -> None:
        """Read the results, and write page and numbers."""
        from atwu.report.board import BOARD_NAME, read_board

        board = read_board(self.results)
        self.output.mkdir(parents=True, exist_ok=True)
        page, numbers = self.output / "index.html", self.output / BOARD_NAME
        for path in (page, numbers):
            check_writable(path, overwrite=self.overwrite)
        from atwu.report.page.board_page import render_board

        write_text(page, render_board(board))
        write_json(numbers, board.to_json())
        count = len(board.studies)
        say(f"wrote {page} and {numbers}: {count} {'study' if count == 1 else 'studies'}")
