"""The verdict on an export, from tables made by hand."""

from __future__ import annotations

import pytest

from atwu.evaluation.facts.fact_table import FactTable
from atwu.exporting.export_run import BACK, EXPORT_DAMAGED, SAME, WITHIN, judge_export
from atwu.request.screen import verdict_text
from tests.request.tables import table


@pytest.mark.parametrize(
    ("before", "after", "increase", "word"),
    [
        (table(2), table(2), 0.0, SAME),
        (table(2), table(0), 0.0, SAME),
        (table(0), table(4), 0.0, WITHIN),  # 2 %
        (table(0), table(5), 0.0, BACK),
        (table(0), table(0, own=1), 0.0, BACK),
        (table(0), table(0), 0.2, EXPORT_DAMAGED),
        (table(0), table(0, refused=6), 0.0, EXPORT_DAMAGED),
        (table(0), table(60), 0.2, BACK),
        (table(50), table(54), 0.0, WITHIN),  # what the run had left does not count against the export
        (table(50), table(55), 0.0, BACK),
    ],
)
def test_words(before: FactTable, after: FactTable, increase: float, word: str) -> None:
    verdict = judge_export(
        before, after, retain_loss_increase=increase, max_retain_increase=0.15, notes=("Weights changed by 4 %.",)
    )
    assert verdict.outcome == word, verdict.reason
    assert bool(verdict.next_steps) == (word in (BACK, EXPORT_DAMAGED))
    text = verdict_text(verdict)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "Weights changed by 4 %." in text
    assert ("Still stated" in text) == bool(after.select(set="forget").stating)
