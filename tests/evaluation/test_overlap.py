"""ROUGE-L recall: the specification's example and the edges."""

from __future__ import annotations

import pytest

from atwu.evaluation.overlap import rouge_l_recall


def test_worked_example() -> None:
    assert rouge_l_recall("long branch new jersey", "he was born in long branch") == 0.5


@pytest.mark.parametrize(
    ("reference", "output", "expected"),
    [
        ("a b c d", "a b c d", 1.0),
        ("a b c d", "d c b a", 0.25),
        ("She paints boats.", "she painted a boat", 1.0),  # case, stemming and extra words cost nothing
        ("a b", "", 0.0),
        ("a b", "  \n", 0.0),
        ("", "a b", None),
        (" ", "", None),
        ("Привет", "Привет", None),  # rouge_score sees a-z and 0-9 only
    ],
)
def test_recall(reference: str, output: str, expected: float | None) -> None:
    assert rouge_l_recall(reference, output) == expected
