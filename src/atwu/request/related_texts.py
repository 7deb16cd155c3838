"""Other texts of the kind where texts are unlearned: famous openings and what the model writes by itself.

Of some the neighbour set has those that the original model recites; the others are trained on as they are. Small models recite
hardly any famous text, and a fine-tuned one its training texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from atwu.data.general_rows import known_texts
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import AS_WRITTEN, recitation_askings
from atwu.evaluation.facts.fact_table import ask_facts
from atwu.request.own_texts import same_text, write_own_texts
from atwu.request.related_questions import MEASURED_ROWS, RelatedRows
from atwu.request.row_facts import ModelReader


def related_texts(
    read: ModelReader, forget: Sequence[Example], *, earlier: Sequence[Example] = (), train: bool = True
) -> RelatedRows:
    """Return other texts to train on and to measure; none if no forget row is a text to be recited.

    Args:
        read: reads with the original model.
        forget: forget rows with their facts marked.
        earlier: forget rows of earlier requests, which are left out, too.
        train: without it, there are no texts to train on.
    """
    none = RelatedRows((), (), tuple(() for _ in forget))
    chance_run = next((row.chance_run for row in forget if row.chance_run is not None), None)
    if chance_run is None:
        return none
    removed = [row for row in (*forget, *earlier) if not row.messages]
    own = write_own_texts(read, removed, chance_run)
    kept: tuple[Example, ...] = ()
    if train:
        kept = (*_without(known_texts("kept"), removed), *own.kept)
    measured = [replace(row, chance_run=chance_run) for row in _without(known_texts("measured"), removed)]
    said = ask_facts(read.answers, recitation_askings(measured, cuts=(AS_WRITTEN,)))
    famous = [measured[record.fact] for record in said.stating]
    return replace(none, kept=kept, neighbours=(*famous, *own.by_heart)[:MEASURED_ROWS])


def _without(texts: Sequence[Example], removed: Sequence[Example]) -> tuple[Example, ...]:
    """Return texts that are not among those to be forgotten, nor a part of one."""
    return tuple(text for text in texts if not any(same_text(row.answer, text.answer) for row in removed))
