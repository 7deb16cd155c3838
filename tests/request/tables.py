"""Tables of facts made by hand."""

from __future__ import annotations

from dataclasses import replace

from atwu.evaluation.facts.askings import AS_WRITTEN
from atwu.evaluation.facts.fact_table import AS_SAVED, GENERAL, FactAnswer, FactTable
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS

FACTS, WAYS = 10, 20
"""Facts, and ways to ask for each: 200 answers, of which 4 are 2 %."""


def answer(set: str, fact: int, asking: str, *, stated: bool = False, state: str = AS_SAVED) -> FactAnswer:
    said = f"It is thing {fact}." if stated else "It is something."
    return FactAnswer(set, fact, asking, state, f"What is thing {fact}, {asking}?", said, stated, False, False)


def table(
    stating: int,
    *,
    own: int = 0,
    neighbours: int = 80,
    refused: int = 0,
    unreadable: int = 0,
) -> FactTable:
    """A table of 10 facts in 20 ways, 10 neighbours in 10 ways and 100 general questions.

    Args:
        stating: answers that state a fact, besides those to own questions; spread over facts, fact 0 first.
        own: facts that are stated to their own question.
        neighbours: answers about neighbours that state theirs.
        refused: general questions that are refused.
        unreadable: answers about facts that cannot be read.
    """
    ways = [AS_WRITTEN, *(f"way {number}" for number in range(1, WAYS))]
    others = [(fact, way) for way in ways[1:] for fact in range(FACTS)]
    facts = [answer("forget", fact, AS_WRITTEN, stated=fact < own) for fact in range(FACTS)]
    facts += [answer("forget", *other, stated=place < stating) for place, other in enumerate(others)]
    facts = facts[: len(facts) - unreadable] + [
        replace(last, unreadable=True) for last in facts[len(facts) - unreadable :]
    ]
    kept = [answer(NEIGHBOURS, place // 10, f"way {place % 10}", stated=place < neighbours) for place in range(100)]
    general = [replace(answer(GENERAL, place, AS_WRITTEN), refused=place < refused) for place in range(100)]
    return FactTable((*facts, *kept, *general))


KNOWN = table(150, own=10)
"""A model that knows all facts."""
