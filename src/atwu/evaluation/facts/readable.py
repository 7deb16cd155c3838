"""Mark answers that cannot be read: far less likely to the original model than the answers that it gave itself.

What is broken or empty is marked without a model when the table is made. Word salad is not: every word of it is a word. The
original model reads it behind its question (`OriginalReader`); a script, code or a refusal is no damage to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from atwu.data.schema import Example
from atwu.evaluation.facts.askings import THOUGHT
from atwu.evaluation.facts.fact_table import BETWEEN_DRAWS, FactAnswer, FactTable
from atwu.evaluation.metrics.fluency import unreadable
from atwu.evaluation.teacher_forced import OriginalReader


def mark_unreadable(table: FactTable, reader: OriginalReader, own: Sequence[Example]) -> FactTable:
    """Return a table in which answers of word salad count as unreadable, too.

    Args:
        table: what an unlearned model said; answers to forms with options, and thoughts, are left as they are.
        reader: the original model.
        own: questions with the answers that the original model gave; they tell how likely its own language is.
    """
    own_logps = reader.read(own, [row.answer for row in own])
    places = [
        place
        for place, record in enumerate(table.records)
        if BETWEEN_DRAWS not in record.answer and record.asking != THOUGHT
    ]
    rows = [_read_behind(table.records[place]) for place in places]
    logps = reader.read(rows, [table.records[place].answer for place in places])
    records = list(table.records)
    for place, logp in zip(places, logps, strict=True):
        record = records[place]
        if not record.unreadable and unreadable(record.answer, float(logp), own_logps):
            records[place] = replace(record, unreadable=True)
    return FactTable(tuple(records))


def _read_behind(record: FactAnswer) -> Example:
    """Return the row of a question; the continuation of a text is read as a text, since no chat would answer like that."""
    if record.recitation is not None:
        return Example((), "")
    return Example.from_qa(record.question, "")
