"""Agreement of judges with labels and with each other, by numbers worked out by hand."""

from __future__ import annotations

import pytest

from atwu.judge.agreement import agreement


def verdicts(text: str) -> list[bool | None]:
    """`+` correct, `-` wrong, `?` unscored."""
    return [{"+": True, "-": False, "?": None}[sign] for sign in text]


def test_wilson_interval_by_hand() -> None:
    """8 of 10: z² = 3.841459; centre (0.8 + 0.192073) / 1.384146 = 0.716740; half width 0.226616."""
    eight, ten, none = (agreement([True] * 10, [True] * k + [False] * (10 - k)).interval for k in (8, 10, 0))
    assert eight == pytest.approx((0.490162, 0.943318), abs=1e-5)
    assert ten == pytest.approx((1 / 1.3841459, 1.0), abs=1e-6)
    assert none == pytest.approx((0.0, 1 - 1 / 1.3841459), abs=1e-6)


def test_kinds_of_cases_are_counted_separately() -> None:
    found = agreement(verdicts("++--"), verdicts("+-+?"), kinds=["b", "b", "a", "a"])
    assert list(found.kinds) == ["a", "b"]
    assert (found.kinds["a"].n, found.kinds["a"].unscored, found.kinds["a"].false_positives) == (1, 1, 1)
    assert (found.kinds["b"].n, found.kinds["b"].accuracy, found.kinds["b"].false_negatives) == (2, 0.5, 1)


@pytest.mark.parametrize(
    ("truth", "said", "n", "wrong", "accuracy", "kappa"),
    [
        # Observed 7/10; labels say yes 6 times, verdicts 5 times: expected (6 * 5 + 4 * 5) / 100 = 0.5; kappa 0.2 / 0.5.
        ("++++++----", "++++--+---", 10, (1, 2), pytest.approx(0.7), pytest.approx(0.4)),
        ("+++-", "+?--", 3, (0, 1), pytest.approx(2 / 3), pytest.approx(0.4)),
        ("+-", "+-", 2, (0, 0), 1.0, 1.0),
        ("+-", "-+", 2, (1, 1), 0.0, -1.0),
        ("+-+-", "++--", 4, (1, 1), 0.5, 0.0),
        ("+++", "+++", 3, (0, 0), 1.0, None),  # undefined if all verdicts are equal
        ("", "", 0, (0, 0), None, None),
        ("+-", "??", 0, (0, 0), None, None),
        ("++-?-", "+-+-?", 3, (1, 1), pytest.approx(1 / 3), pytest.approx(-0.5)),  # two judges
    ],
)
def test_agreement_by_hand(truth: str, said: str, n: int, wrong: tuple, accuracy: float, kappa: float) -> None:
    found = agreement(verdicts(truth), verdicts(said))
    assert (found.n, found.unscored, found.accuracy, found.kappa) == (n, len(truth) - n, accuracy, kappa)
    assert (found.false_positives, found.false_negatives) == wrong
    assert (found.interval is None) == (n == 0)
