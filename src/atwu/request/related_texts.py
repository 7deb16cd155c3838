"""Other texts of the kind where texts are unlearned: famous openings, to train on as they are and to measure.

Of those to measure, the neighbour set has the ones that the original model recites: small models recite hardly any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from atwu.data.general_rows import known_texts
from atwu.data.recitation import compare_wording
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import AS_WRITTEN, recitation_askings
from atwu.evaluation.facts.fact_table import ask_facts
from atwu.request.related_questions import RelatedRows
from atwu.request.row_facts import ModelReader

SAME_TEXT = 6
"""Words in one run that two texts share from which they are taken to be the same; "that all men are created" has five."""


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
    kept = _without(known_texts("kept"), removed) if train else ()
    measured = [replace(row, chance_run=chance_run) for row in _without(known_texts("measured"), removed)]
    said = ask_facts(read.answers, recitation_askings(measured, cuts=(AS_WRITTEN,)))
    recited = tuple(measured[record.fact] for record in said.stating)
    return replace(none, kept=kept, neighbours=recited)


def _without(texts: Sequence[Example], removed: Sequence[Example]) -> tuple[Example, ...]:
    """Return texts that are not among those to be forgotten, nor a part of one."""
    return tuple(
        text
        for text in texts
        if all(compare_wording("", row.answer, text.answer).longest_run < SAME_TEXT for row in removed)
    )
