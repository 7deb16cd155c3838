"""Numbers of a study compared with published ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atwu.evaluation.aggregate import overall
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.row_statistics import ColumnValues, ModelComparison, RowMetrics, metric_values_by_set
from atwu.experiments.published import PublishedTable
from atwu.experiments.study.published_comparison import compare_orderings, published_value
from atwu.report.report_records import Records, RunRecord

PEOPLE = ("orla", "tavi", "venn", "brook")


def run(label: str, seed: int, values: dict[str, tuple[float | None, ...]]) -> RunRecord:
    rows = {"forget": RowValues(PEOPLE, PEOPLE, values)}
    recorded = {"forget": {metric: ColumnValues(numbers, "up") for metric, numbers in values.items()}}
    result = EvalResult(
        model=f"{label}-s{seed}",
        fingerprint=f"{label}-s{seed}",
        sets=metric_values_by_set(RowMetrics(rows), recorded),
        overall={},
        rows=rows,
        settings={},
        versions={},
        cost={"judge_usd": 0.0},
    )
    return RunRecord(label, seed, None, result)


def test_every_label_is_compared_by_its_own_score_row_by_row():
    nothing = (0.0,) * 4  # values of other labels' scores in a run must not be used
    runs = []
    for seed, more in ((1, 0.0), (2, 0.1)):
        mine = (0.6 + more, 0.7 + more, 0.8 + more, None)
        runs += [
            run("scorer", seed, {"auroc_scorer": mine, "auroc_saturation": nothing, "auroc_entropy": nothing}),
            run("saturation", seed, {"auroc_scorer": nothing, "auroc_saturation": (0.5, 0.6, 0.7, 0.1)}),
            run("entropy", seed, {"auroc_scorer": nothing, "auroc_entropy": (0.3, 0.9, 1.0, 0.8)}),
        ]
    rows = {"scorer": {"auroc": 0.75}, "entropy": {"auroc": 0.67}, "saturation": {"auroc": 0.33}}
    table = PublishedTable("mine", "", (), ("auroc",), rows, frozenset())
    found = compare_orderings(Records("", {}, tuple(runs)), table)["auroc"]
    pairs = {(pair.better, pair.worse): pair for pair in found.pairs}
    assert set(pairs) == {("scorer", "saturation"), ("scorer", "entropy"), ("entropy", "saturation")}
    ahead = pairs["scorer", "saturation"]
    # On the three rows that both have: .1 with seed 1 and .2 with seed 2, and the same for every person.
    assert ahead.ours == pytest.approx((0.15, 0.15, 0.15))
    assert ahead.outcome == "holds"
    assert pairs["scorer", "entropy"].ours[0] == pytest.approx(0.7 + 0.05 - 2.2 / 3)
    assert pairs["scorer", "entropy"].outcome == "holds, within noise"
    assert pairs["entropy", "saturation"].ours[0] == pytest.approx(3.0 / 4 - 1.9 / 4)


def test_extraction_strength_has_the_lower_bound_of_published_tables():
    def memorised(label: str, plain: tuple[float, ...]) -> RunRecord:
        floored = tuple(max(value, 0.1) for value in plain)
        kept = {"extraction_strength": (1.0,) * 4, "extraction_strength_floored": (1.0,) * 4}
        left = {"extraction_strength": plain, "extraction_strength_floored": floored}
        rows = {"forget": RowValues(PEOPLE, PEOPLE, left), "retain": RowValues(PEOPLE, PEOPLE, kept)}
        found = run(label, 1, {}).result
        sides = ModelComparison(RowMetrics(rows), original=None, retain_only=None)
        return RunRecord(label, 1, None, replace(found, rows=rows, overall=overall(sides)))

    records = Records("", {}, (memorised("atwu", (0.0,) * 4), memorised("npo", (0.2, 0.4, 0.2, 0.4))))
    assert published_value(records, "ES_delta", "atwu").value == pytest.approx(0.9)
    assert records.results["atwu"].overall["ES_delta"].value == 1.0
    table = PublishedTable(
        "", "", (), ("ES_delta",), {"atwu": {"ES_delta": 0.9}, "npo": {"ES_delta": 0.1}}, frozenset()
    )
    (pair,) = compare_orderings(records, table)["ES_delta"].pairs
    assert pair.ours[0] == pytest.approx(0.9 - 0.7)
