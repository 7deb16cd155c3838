"""Rows that are written come back equal."""

from __future__ import annotations

from atwu.benchmarks.people.rows import people
from atwu.benchmarks.sources import load_rows
from atwu.data.rows import write_rows
from atwu.data.schema import Example, Message


def test_rows_of_every_layout_come_back(tmp_path):
    turns = (Message("system", "Be brief."), Message("user", "Who lives in Kelbury?"))
    rows = (
        *people("tiny").forget[:5],
        Example.from_qa("Who?", "Orla Venn.", forget_spans=(), paraphrased_answer="It is Orla Venn."),
        Example(messages=turns, answer="Tavi Brook does."),
        Example(messages=(), answer="Orla Venn lives in Kelbury."),
    )
    write_rows(tmp_path / "rows.jsonl", rows)
    assert load_rows(tmp_path / "rows.jsonl").rows == rows
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
