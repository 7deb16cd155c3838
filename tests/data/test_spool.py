"""Large sets of rows are stored on disk and read like a sequence."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing

import pytest

from atwu.benchmarks.sources import load_rows
from atwu.data import encode, spool
from atwu.data.schema import Example, Message
from atwu.data.spool import DiskRows, store_rows
from atwu.modeling.scratch import train_tokenizer

ROWS = [
    *(
        Example.from_qa(f"Who keeps {count} bees?", f"Orla Venn’s {count}.", subject=str(count // 3))
        for count in range(7)
    ),
    Example((), "plain text\u2028on one line"),
    Example(
        (Message("system", "Be short."), Message("user", "Who?")),
        "Orla.",
        forget_spans=((0, 4),),
        paraphrases=("Whose?",),
    ),
    Example.from_qa("Where?", "Kelbury.", forget_spans=(), wrong_answers=("Oslo.",), alternate="I cannot say."),
]


@pytest.fixture
def few(monkeypatch):
    """Store more than a few rows on disk."""
    monkeypatch.setattr(spool, "IN_MEMORY", 3)


def test_rows_on_disk_are_the_same_sequence(monkeypatch):
    monkeypatch.setattr(spool, "IN_MEMORY", 8)
    numbers = [list(range(count)) for count in range(9)]
    found = store_rows(iter(numbers))
    assert isinstance(found, DiskRows)
    assert list(found) == numbers
    assert [found[index] for index in range(-9, 9)] == numbers * 2
    assert found[2:8:3] == (numbers[2], numbers[5])
    assert len(found) == 9
    with pytest.raises(IndexError):
        found[9]
    assert store_rows(iter(numbers[:8])) == tuple(numbers[:8])


def test_encoded_rows_are_unchanged(few):
    tokenizer = train_tokenizer([row.answer for row in ROWS], vocab_size=300)
    held = encode.Encoder(tokenizer).encode_rows(ROWS[:3], what="rows").rows
    spooled = encode.Encoder(tokenizer).encode_rows(ROWS, what="rows").rows
    assert isinstance(held, tuple)
    assert isinstance(spooled, DiskRows)
    assert tuple(spooled[:3]) == held
    again = [encode.Encoder(tokenizer).encode(row) for row in ROWS]
    assert [dataclasses.astuple(row) for row in spooled] == [dataclasses.astuple(row) for row in again]


@pytest.mark.parametrize("limit", [None, 5])
def test_large_file_gives_the_same_rows(tmp_path, monkeypatch, limit):
    lines = [json.dumps({"question": row.question, "answer": row.answer, "odd": 1}) for row in [*ROWS[:7], ROWS[2]]]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    held = load_rows(tmp_path / "rows.jsonl", limit=limit)
    monkeypatch.setattr(spool, "IN_MEMORY", 3)
    many = load_rows(tmp_path / "rows.jsonl", limit=limit)
    assert isinstance(many.rows, DiskRows)
    assert (tuple(many.rows), many.warnings, many.fingerprint) == (held.rows, held.warnings, held.fingerprint)
    assert len(many.warnings) == (1 if limit else 2)


@pytest.mark.posix
def test_a_forked_process_reads_the_same_rows(few):
    found = store_rows(iter(ROWS))
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=lambda: theirs.send([row.answer for row in found]))
    process.start()
    assert [row.answer for row in found] == [row.answer for row in ROWS]
    assert mine.recv() == [row.answer for row in ROWS]
    process.join()
