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


def test_a_server_that_fails_at_once_leaves_one_line_and_the_files_as_they_were(
    atwu: Callable[..., str], server: ChatServer, tmp_path: Path
) -> None:
    rows, page = tmp_path / "rows.jsonl", tmp_path / "rows.html"
    rows.write_text("rows of yesterday\n", encoding="utf-8")
    printed = atwu(
        *("ask", "--model", "m", "--model-url", server.url("unauthorized"), "--about", "Egypt", "--kind", "place"),
        *("--output", rows, "--html", page, "--overwrite"),
        code=1,
    )
    assert "set ATWU_MODEL_KEY to a valid one" in printed
    assert "says nothing" not in printed  # nothing was asked, so nothing is known about the model
    assert "written" not in printed
    assert rows.read_text(encoding="utf-8") == "rows of yesterday\n"
    assert not page.exists()


def test_a_server_that_is_not_there_is_named_in_one_line(atwu: Callable[..., str]) -> None:
    printed = atwu(
        *("ask", "--model", "m", "--model-url", "http://127.0.0.1:9/v1", "--about", "Egypt", "--kind", "place"), code=1
    )
    assert "error: cannot connect to http://127.0.0.1:9/v1; is the server running?" in printed
    assert "stopped early" not in printed


def test_a_question_that_is_longer_than_the_model_reads_is_refused_before_any_is_asked(
    atwu: Callable[..., str], models: Models, tmp_path: Path
) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(f"Where is Varn?\nIs it true that {'every glassblower of Varn ' * 2000}sings?\n", encoding="utf-8")
    printed = atwu("ask", "--model", models.original, "--questions", file, code=1)
    assert f"error: {file}: " in printed
    assert "question 'Is it true that every glassblower" in printed
    assert "positions; shorten the prompt" in printed
    assert "prompts" not in printed


def test_a_name_that_is_longer_than_the_model_reads_is_refused_in_one_line(
    atwu: Callable[..., str], models: Models
) -> None:
    printed = atwu("ask", "--model", models.original, "--about", "Varn " * 900, "--kind", "place", code=1)
    assert "error: none of" in printed
    assert "positions; shorten the prompt" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("name", ["مصر", *(pytest.param(name, marks=pytest.mark.night) for name in ("越国", "Ελλάδα"))])
def test_a_name_in_another_script_is_asked_about(atwu: Callable[..., str], models: Models, name: str) -> None:
    printed = atwu("ask", "--model", models.original, "--about", name, "--kind", "substance")
    assert f"about {name} (" in printed or f"of {name}" in printed
