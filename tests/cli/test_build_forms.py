"""`atwu forms build` writes rows that can be read and trained on."""

from __future__ import annotations

from pathlib import Path

from atwu.benchmarks.sources import load_rows
from tests.commands import run_command


def test_forms_are_written_and_counted(tmp_path: Path) -> None:
    output = tmp_path / "forms.jsonl"
    done = run_command(
        ["forms", "build", "--data", "people:tiny:forget", "--output", output, "--forms", "question,blank"]
    )
    assert done.returncode == 0, done.stderr
    rows, forget = load_rows(output).rows, load_rows("people:tiny:forget").rows
    assert len(rows) == 2 * len(forget)
    assert rows[0].question == forget[0].question
    assert "____" in rows[1].question
    assert done.stdout.split()[:4] == ["question", str(len(forget)), "blank", str(len(forget))]


def test_columns_have_the_names_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text("prompt;reply\nWho keeps bees?;Pella Oduya does.\n")
    command = [
        "forms",
        "build",
        "--data",
        tmp_path / "faq.csv",
        "--output",
        tmp_path / "forms.jsonl",
        "--forms",
        "question",
    ]
    done = run_command([*command, "--columns", "question=prompt,answer=reply"])
    assert done.returncode == 0, done.stderr
    assert load_rows(tmp_path / "forms.jsonl").rows[0].answer == "Pella Oduya does."
    done = run_command([*command, "--columns", "question=prompt,anwser=reply", "--overwrite"])
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "Did you mean 'answer'?" in done.stderr


def test_what_writes_nothing_is_rejected(tmp_path: Path) -> None:
    for given, said in (("none", "--forms none"), ("blnk", "'blank'")):
        done = run_command(
            ["forms", "build", "--data", "people:tiny:forget", "--output", tmp_path / "forms.jsonl", "--forms", given]
        )
        assert done.returncode == 1
        assert said in done.stderr
        assert not (tmp_path / "forms.jsonl").exists()
