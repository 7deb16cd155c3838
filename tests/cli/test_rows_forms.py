"""`atwu rows forms` writes rows that can be read and trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from atwu import UnlearnConfig
from atwu.benchmarks.sources import load_rows
from atwu.modeling.scratch import train_tokenizer
from atwu.training.training_rows import unlearning_rows


def test_forms_are_written_and_counted(atwu, tmp_path: Path) -> None:
    output = tmp_path / "forms.jsonl"
    command = ("rows", "forms", "--data", "people:tiny:forget", "--output", output, "--forms")
    for given, said in (("none", "--forms none"), ("blnk", "'blank'")):
        assert said in atwu(*command, given, code=1)
        assert not output.exists()
    printed = atwu(*command, "question,blank")
    rows, forget = load_rows(output).rows, load_rows("people:tiny:forget").rows
    assert len(rows) == 2 * len(forget)
    assert rows[0].question == forget[0].question
    assert "____" in rows[1].question
    assert printed.split()[:4] == ["question", str(len(forget)), "blank", str(len(forget))]


def test_forms_are_not_made_of_forms(atwu, tmp_path: Path) -> None:
    output, again = tmp_path / "forms.jsonl", tmp_path / "again.jsonl"
    atwu("rows", "forms", "--data", "people:tiny:forget", "--output", output, "--forms", "question,complete")
    assert "--forms none" in atwu("rows", "forms", "--data", output, "--output", again, "--forms", "blank", code=1)
    assert not again.exists()
    config = UnlearnConfig(output_dir=str(tmp_path), forms="auto")
    with pytest.raises(ValueError, match=r"already holds 'Complete this sentence: .*', the form complete of .*none"):
        unlearning_rows(str(output), "people:tiny:retain", config, tokenizer=train_tokenizer(["a"], vocab_size=300))


@pytest.mark.parametrize("form", ["reversed", "quiz_host,prefix"])
def test_forms_are_not_made_of_forms_without_their_rows(atwu, tmp_path: Path, form: str) -> None:
    output, again = tmp_path / "forms.jsonl", tmp_path / "again.jsonl"
    atwu("rows", "forms", "--data", "people:tiny:forget", "--output", output, "--forms", form)
    said = atwu("rows", "forms", "--data", output, "--output", again, code=1)
    assert f"error: {output} holds nothing but forms of other rows, such as" in said
    assert not again.exists()


def test_columns_have_the_names_of_the_file(atwu, tmp_path: Path) -> None:
    data, output = tmp_path / "faq.csv", tmp_path / "forms.jsonl"
    data.write_text("prompt;reply\nWho keeps bees?;Pella Oduya does.\n")
    command = ("rows", "forms", "--output", output, "--forms", "question", "--overwrite", "--data")
    atwu(*command, f"{data}:question=prompt,answer=reply")
    assert load_rows(output).rows[0].answer == "Pella Oduya does."
    assert "Did you mean 'answer'?" in atwu(*command, f"{data}:question=prompt,anwser=reply", code=1)
