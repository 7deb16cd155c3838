"""Length-normalised answer probability."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from atwu.evaluation.metrics.memorization import answer_probability


def test_running_example() -> None:
    logps = torch.tensor([0.9, 0.2, 0.6, 0.5]).log()
    assert answer_probability(logps) == pytest.approx(0.482057, abs=1e-6)
    assert answer_probability(logps.numpy()) == pytest.approx(0.482057, abs=1e-6)
    assert answer_probability([math.log(p) for p in (0.9, 0.2, 0.6, 0.5)]) == pytest.approx(0.482057, abs=1e-6)


def test_edges() -> None:
    assert answer_probability([0.0, 0.0]) == 1.0
    assert answer_probability(np.array([-1.0, -np.inf])) == 0.0
    assert answer_probability([1e-5]) == 1.0  # rounding of a log-softmax
    assert answer_probability([]) is None


@pytest.mark.parametrize(("logps", "shown"), [([float("nan"), -1.0], "nan"), ([2.0], "2"), ([-9.0, 0.5], "0.5")])
def test_values_above_zero_are_rejected_as_log_probabilities(logps: list[float], shown: str) -> None:
    with pytest.raises(ValueError, match=rf"\b0\b.* {shown}"):
        answer_probability(logps)
