"""Means over seeds if a seed lacks a metric."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from atwu._cache import short_hash
from atwu.evaluation.aggregate import mean_over_seeds, overall
from atwu.evaluation.intervals import combine
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.row_statistics import ColumnValues, ModelComparison, RowMetrics, metric_values_by_set

SUBJECTS = ("Orla Venn", "Orla Venn", "Tavi Brook", "Ines Kelbury")


def result(seed: int, forget: tuple[float, ...], retain: tuple[float, ...] | None) -> EvalResult:
    recorded = {"forget": {"extraction_strength": ColumnValues(forget, "down")}}
    if retain is not None:
        recorded["retain"] = {"extraction_strength": ColumnValues(retain, "up")}
    rows = {
        split: RowValues(
            tuple(f"{split}{n}" for n in range(4)), SUBJECTS, {name: kept.values for name, kept in metrics.items()}
        )
        for split, metrics in recorded.items()
    }
    numbers = RowMetrics(rows)
    name = f"atwu-s{seed}"
    return EvalResult(
        name, short_hash(name), metric_values_by_set(numbers, recorded), overall(ModelComparison(numbers)), rows, {}, {}
    )


FULL = [result(0, (0.1, 0.2, 0.3, 0.4), (0.9, 0.8, 0.7, 1.0)), result(1, (0.0, 0.2, 0.1, 0.5), (0.5, 0.8, 0.6, 0.7))]
LACKING = result(2, (0.3, 0.3, 0.3, 0.3), None)


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
    low, high = combine(
        lambda *parts: np.mean(parts, axis=0), *(RowMetrics(r.rows).mean("retain", "extraction_strength") for r in FULL)
    ).interval((0.0, 1.0))
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
