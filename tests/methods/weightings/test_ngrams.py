"""N-gram tables: the worked example, contexts that include the prompt, short contexts, order of rows."""

from __future__ import annotations

from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX
from atwu.methods.weightings.fixed_weights import NgramTable

A, B, C, D, E = range(10, 15)


def row(prompt, answer):
    ids = (*prompt, *answer)
    return EncodedRow(ids, (IGNORE_INDEX,) * len(prompt) + tuple(answer), None, (None,) * len(ids), True)


def test_worked_example():
    forget = NgramTable.of([row([A, B], [C])] * 3 + [row([A, B], [D])])
    retain = NgramTable.of([row([A, B], [C]), row([A, B], [E])])
    for target, first, second in ((C, 0.75, 0.5), (D, 0.25, 0.0), (E, 0.0, 0.5)):
        assert forget.probabilities(row([A, B], [target])).tolist() == [first]
        assert retain.probabilities(row([A, B], [target])).tolist() == [second]
    assert forget.probabilities(row([B, A], [C])).tolist() == [0.0]


def test_contexts_include_the_prompt_and_targets_do_not():
    table = NgramTable.of([row([A, B, C], [D, E])])
    assert dict(table.continuations) == {(B, C): {D: 1}, (C, D): {E: 1}}
