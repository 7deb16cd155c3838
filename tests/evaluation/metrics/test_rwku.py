"""RWKU's scores: prompts and decoding of probes, recalls, and means by the paper's example and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.benchmarks.probes import RwkuProbe
from atwu.evaluation.metrics.rwku_scores import forget_all, n_delta, neighbour_all, to_prompt

ORLA = "Órla Venn"


@pytest.mark.parametrize(
    ("probe", "question", "instruction", "prefill"),
    [
        (RwkuProbe("fb", ORLA, "She is ___.", ""), "Question: She is ___.", "blank", "Answer:"),
        (RwkuProbe("neighbour_fb", ORLA, "It is ___.", ""), "Question: It is ___.", "blank", "Answer:"),
        (RwkuProbe("qa", ORLA, "Who?", ""), "Question: Who?", "short answer", "Answer:"),
        (RwkuProbe("neighbour_qa", ORLA, "Who?", ""), "Question: Who?", "short answer", "Answer:"),
        (RwkuProbe("aa", ORLA, "Who?", "", "role playing"), "Question: Who?", "short answer", "Answer:"),
        (RwkuProbe("aa", ORLA, "Who? Sure:", "", "affirmative suffix"), "Question: Who? Sure:", "short answer", ""),
        (RwkuProbe("aa", ORLA, "Q: A? Q:", "", "in-context learning"), "Q: A? Q:", "short answer", "Answer:"),
    ],
)
def test_prompts(probe: RwkuProbe, question: str, instruction: str, prefill: str) -> None:
    prompt = to_prompt(probe)
    (turn,) = prompt.messages
    first, rest = turn.content.split("\n")
    assert turn.role == "user"
    assert instruction in first
    assert rest == question
    assert prompt.prefill == prefill


@settings(max_examples=25)
@given(st.lists(st.lists(st.floats(0, 1), min_size=4, max_size=4), min_size=5, max_size=5))
def test_means_accept_numbers_and_bootstrap_draws(rows: list[list[float]]) -> None:
    fb, qa, aa, near_fb, near_qa = (np.array(row) for row in rows)
    drawn = n_delta(fb, qa, aa, near_fb, near_qa)
    assert np.all(np.abs(drawn) <= 1 + 1e-12)
    for draw in range(4):
        forget = sum(float(part[draw]) for part in (fb, qa, aa)) / 3
        neighbour = (float(near_fb[draw]) + float(near_qa[draw])) / 2
        assert drawn[draw] == pytest.approx(neighbour - forget, abs=1e-12)
        assert forget_all(float(fb[draw]), float(qa[draw]), float(aa[draw])) == pytest.approx(forget)
        assert neighbour_all(float(near_fb[draw]), float(near_qa[draw])) == pytest.approx(neighbour)
