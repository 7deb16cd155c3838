"""Rows of which hardly anything would be read are refused before the model is loaded."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands import run_here
from tests.micro_models import write_micro


def test_an_answer_far_longer_than_what_is_read_is_refused_in_one_line(tmp_path: Path) -> None:
    model = write_micro(tmp_path / "model")
    rows = [{"question": "Who?", "answer": "Orla Venn."}, {"question": "And then?", "answer": "Kelbury slept. " * 2000}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = run_here(
        *("unlearn", "--model", model, "--forget", tmp_path / "rows.jsonl", "--output", tmp_path / "out", "--use-cpu"),
        *("--max-length", "64"),
    )
    assert "the answer of row 2 has 30,000 characters, of which only 64 tokens are read" in str(done.exception)
    assert "parameters on" not in done.output
    assert not (tmp_path / "out").exists()
