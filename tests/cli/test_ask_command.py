"""`atwu ask` from end to end: a tiny model, a served one, and what it refuses before a model is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from atwu.benchmarks.sources import load_rows
from tests.chat_server import ChatServer
from tests.cli.conftest import Models


def test_a_name_without_a_kind_gives_a_table_a_file_and_a_page(
    atwu: Callable[..., str], models: Models, tmp_path: Path
) -> None:
    rows, page = tmp_path / "rows.jsonl", tmp_path / "rows.html"
    templates = tmp_path / "templates.yaml"
    templates.write_text(
        'person:\n  words: [person]\n  names: [people]\n  questions:\n  - ["Where does {name} live?", "{name} lives in"]\n',
        encoding="utf-8",
    )
    printed = atwu(
        *("ask", "--model", models.original, "--about", "Orla Venn", "--templates", templates),
        *("--output", rows, "--html", page, "--every"),
    )
    assert "Orla Venn" in printed
    assert f"written: {rows}" in printed
    assert "Orla Venn" in page.read_text(encoding="utf-8")
    for row in load_rows(str(rows)).rows if rows.read_text(encoding="utf-8") else ():
        assert row.forget_spans


def test_a_document_is_tested_for_recited_passages(atwu: Callable[..., str], models: Models, tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text(
        "Orla Venn lives in the small town of Port Sel and she makes green bowls of glass. " * 2, encoding="utf-8"
    )
    printed = atwu("ask", "--model", models.original, "--document", page)
    assert "recites 0 of 2 passages" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to ask"),
        (("--about", "Egypt", "--kind", "palce"), "no questions for the kind 'palce'"),
        (("--about", "Egypt", "--output", "rows.csv"), "must end in .jsonl"),
        (("--questions", "missing.txt"), "missing.txt"),
        (("--about", "Egypt", "--document", "page.txt"), "exclude each other"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(
    atwu: Callable[..., str], arguments: tuple[str, ...], message: str
) -> None:
    code = 1
    if message in ("nothing to ask", "exclude each other", "must end in .jsonl"):
        code = 2
    assert message in atwu("ask", "--model", "no-such-model", *arguments, code=code)


def test_a_server_that_fails_leaves_one_line_and_an_empty_file(
    atwu: Callable[..., str], server: ChatServer, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    printed = atwu(
        *("ask", "--model", "m", "--model-url", server.url("unauthorized"), "--about", "Egypt", "--kind", "place"),
        *("--output", rows),
        code=1,
    )
    assert "stopped early" in printed
    assert rows.is_file()
