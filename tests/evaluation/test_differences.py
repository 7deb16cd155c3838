"""Differences of two models on the same rows, and means over seeds and studies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from atwu.evaluation.aggregate import mean_over_seeds, mean_over_studies, paired_differences
from atwu.evaluation.intervals import Resampler, RowMetrics, combine
from tests.evaluation.conftest import result_of, row_values

SUBJECTS = [f"person {index // 3}" for index in range(30)]


def rows(shift=0.0, *, ids="row", subjects=SUBJECTS):
    noise = np.random.default_rng(0).uniform(20, 60, size=30)
    return {
        "forget": row_values({"J_W": noise + shift}, subjects, ids=ids),
        "retain": row_values({"J_AVG": noise[::-1] + shift}, subjects, ids=ids),
    }


def derived(one, other, references):
    return {
        name: found for (split, name), found in paired_differences(one, other, references).items() if split == "overall"
    }


def test_a_constant_difference_has_an_interval_that_allows_for_other_subjects():
    one, other = result_of(rows(7.5), name="one"), result_of(rows(), name="other")
    unseen = 1 - 0.025 ** (1 / 10)
    for estimate in paired_differences(one, other).values():
        assert estimate.value == pytest.approx(7.5)
        assert estimate.interval() == pytest.approx((7.5 - unseen * 107.5, 7.5 + unseen * 92.5))
    wide = one.sets["forget"]["J_W"]
    assert wide.high - wide.low > 5


def test_only_rows_that_both_models_have_a_value_on_are_compared():
    one = result_of({"forget": row_values({"J_W": [1.0, None, 5.0]})}, name="one")
    other = result_of({"forget": row_values({"J_W": [0.0, 9.0, None]})}, name="other")
    assert paired_differences(one, other)["forget", "J_W"].value == 1.0


def test_different_rows_are_rejected():
    one, other = result_of(rows(), name="atwu"), result_of(rows(ids="other"), name="npo")
    with pytest.raises(ValueError, match=r"atwu.*npo.*\b(forget|retain)\b"):
        paired_differences(one, other)


def test_derived_metrics_are_recomputed_from_the_references():
    original = result_of(rows(30.0), name="original")
    one, other = (result_of(rows(s), name=str(s), original=original) for s in (2.0, 0.0))
    found = derived(one, other, [one, other, original])
    assert set(found) == {"FQ", "RD", "UQ"}
    for name, estimate in found.items():
        assert estimate.value == pytest.approx(one.overall[name].value - other.overall[name].value)
        low, high = estimate.interval()
        assert low <= estimate.value <= high
    low, high = found["FQ"].interval()
    assert high < 0  # paired, though the two intervals overlap
    assert one.overall["FQ"].high > other.overall["FQ"].low
    assert derived(one, other, [one, other]) == {}
    low, high = derived(one, one, [original])["UQ"].interval()
    assert low == -high < 0


def test_derived_metrics_need_references_in_both_results():
    original = result_of(rows(30.0), name="original")
    one = result_of(rows(), name="one", original=original)
    assert derived(one, original, [one, original]) == {}
    assert derived(one, dataclasses.replace(one, references={}), [original]) == {}


def test_studies_with_equally_many_subjects_have_independent_draws():
    rng = np.random.default_rng(0)
    one = Resampler(SUBJECTS).mean(rng.normal(size=30))
    alone, twice, four = (mean_over_studies([one] * times) for times in (1, 2, 4))
    assert alone.value == twice.value == four.value == one.value
    assert sorted(alone.draws) == sorted(one.draws)
    # Independent studies: the deviation of the mean falls as the root of their number; drawn alike it would not fall.
    assert twice.draws.std() == pytest.approx(one.draws.std() / 2**0.5, rel=0.1)
    assert four.draws.std() == pytest.approx(one.draws.std() / 2, rel=0.1)


def test_every_study_has_the_same_weight():
    small, large = Resampler(SUBJECTS[:6]).mean(np.zeros(6)), Resampler(SUBJECTS).mean(np.full(30, 10.0))
    assert mean_over_studies([small, large]).value == 5.0


def of_seed(seed, forget, retain):
    """Return the result of one seed."""
    given = {"forget": forget} | ({} if retain is None else {"retain": retain})
    subjects = ("Orla Venn", "Orla Venn", "Tavi Brook", "Ines Kelbury")
    rows = {
        split: row_values({"extraction_strength": strengths}, subjects, ids=split) for split, strengths in given.items()
    }
    return result_of(rows, name=f"atwu-s{seed}")


FULL = [of_seed(0, (0.1, 0.2, 0.3, 0.4), (0.9, 0.8, 0.7, 1.0)), of_seed(1, (0.0, 0.2, 0.1, 0.5), (0.5, 0.8, 0.6, 0.7))]
LACKING = of_seed(2, (0.3, 0.3, 0.3, 0.3), None)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_metric_missing_for_one_seed_is_averaged_over_the_others(order) -> None:
    seeds = [[*FULL, LACKING][place] for place in order]
    found = mean_over_seeds(seeds, name="atwu")
    assert found.sets["forget"]["extraction_strength"].seeds == 3
    for split, cells, whole in (
        ("retain", found.sets["retain"], mean_over_seeds(FULL, name="atwu").sets["retain"]),
        ("overall", found.overall, mean_over_seeds(FULL, name="atwu").overall),
    ):
        name = "extraction_strength" if split == "retain" else "ES_delta"
        assert cells[name].seeds == 2
        for field in ("value", "low", "high", "seed_std", "n"):
            assert getattr(cells[name], field) == pytest.approx(getattr(whole[name], field))
    low, high = (
        combine(
            lambda *parts: np.mean(parts, axis=0),
            *(RowMetrics(r.rows).mean("retain", "extraction_strength") for r in FULL),
        )
        .bounded((0.0, 1.0))
        .interval()
    )
    assert (low, high) == pytest.approx(
        tuple(getattr(found.sets["retain"]["extraction_strength"], end) for end in ("low", "high"))
    )


def test_a_metric_without_a_value_is_not_averaged() -> None:
    first = FULL[0]
    cell = dataclasses.replace(first.sets["retain"]["extraction_strength"], value=None, n=0, low=None, high=None)
    rows = {
        **first.rows,
        "retain": dataclasses.replace(first.rows["retain"], metrics={"extraction_strength": (None,) * 4}),
    }
    empty = dataclasses.replace(first, sets={**first.sets, "retain": {"extraction_strength": cell}}, rows=rows)
    found = mean_over_seeds([empty, FULL[1]], name="atwu").sets["retain"]["extraction_strength"]
    assert (found.value, found.n, found.seeds, found.seed_std) == (pytest.approx(0.65), 4, 1, None)
    assert mean_over_seeds([empty, empty], name="atwu").sets["retain"]["extraction_strength"].value is None


def test_results_on_different_rows_cannot_be_averaged() -> None:
    other = dataclasses.replace(FULL[1].rows["forget"], ids=tuple("abcd"))
    with pytest.raises(ValueError, match="different rows"):
        mean_over_seeds([FULL[0], dataclasses.replace(FULL[1], rows={"forget": other})], name="atwu")
