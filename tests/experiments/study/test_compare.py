"""Numbers of a study compared with published ones, and pairwise orderings of methods."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from atwu.cli.app import run_cli
from atwu.evaluation.result import RowValues
from atwu.experiments.published_comparison import (
    PublishedTable,
    compare_orderings,
    comparison_table,
    not_compared,
    orderings,
    outcome_of,
    published_value,
)
from atwu.report.report_records import Records, RunRecord
from tests.evaluation.conftest import result_of

NAN = math.nan
PEOPLE = ("orla", "tavi", "venn", "brook")


def run(label: str, seed: int, values: dict[str, tuple[float | None, ...]]) -> RunRecord:
    result = result_of(
        {"forget": RowValues(PEOPLE, PEOPLE, values)}, name=f"{label}-s{seed}", overall={}, cost={"judge_calls": 0.0}
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
    assert ahead.ours[0] == pytest.approx(0.15)
    # Three people who agree show little: a fourth may differ.
    assert ahead.outcome == "holds, within noise"
    assert pairs["scorer", "entropy"].ours[0] == pytest.approx(0.7 + 0.05 - 2.2 / 3)
    assert pairs["scorer", "entropy"].outcome == "holds, within noise"
    assert pairs["entropy", "saturation"].ours[0] == pytest.approx(3.0 / 4 - 1.9 / 4)


def test_extraction_strength_has_the_lower_bound_of_published_tables():
    def memorised(label: str, plain: tuple[float, ...]) -> RunRecord:
        floored = tuple(max(value, 0.1) for value in plain)
        kept = {"extraction_strength": (1.0,) * 4, "extraction_strength_floored": (1.0,) * 4}
        left = {"extraction_strength": plain, "extraction_strength_floored": floored}
        rows = {"forget": RowValues(PEOPLE, PEOPLE, left), "retain": RowValues(PEOPLE, PEOPLE, kept)}
        return RunRecord(label, 1, None, result_of(rows, name=label))

    records = Records("", {}, (memorised("atwu", (0.0,) * 4), memorised("npo", (0.2, 0.4, 0.2, 0.4))))
    assert published_value(records, "ES_delta", "atwu").value == pytest.approx(0.9)
    assert records.results["atwu"].overall["ES_delta"].value == 1.0
    table = PublishedTable(
        "", "", (), ("ES_delta",), {"atwu": {"ES_delta": 0.9}, "npo": {"ES_delta": 0.1}}, frozenset()
    )
    (pair,) = compare_orderings(records, table)["ES_delta"].pairs
    assert pair.ours[0] == pytest.approx(0.9 - 0.7)


def test_no_number_of_the_table_is_cut_off_on_a_narrow_terminal():
    values = {"extraction_strength_floored": (0.125, 0.25, 0.5, 0.0), "extraction_strength": (0.125, 0.25, 0.5, 0.0)}
    metrics = ("UQ", "FQ", "RD", "ES_delta")
    table = PublishedTable("mine", "", (), metrics, {"atwu": dict.fromkeys(metrics, 0.625)}, frozenset())
    console = Console(width=60, file=io.StringIO())
    console.print(comparison_table(Records("", {}, (run("atwu", 1, values),)), table))
    assert "…" not in console.file.getvalue()


def test_labels_that_are_not_compared_are_named():
    rows = {name: {"ES_delta": 0.5} for name in ("original", "atwu", "npo", "wga")}
    table = PublishedTable("mine", "", (), ("ES_delta",), rows, frozenset())
    variants = [{"label": label} for label in ("atwu", "mine", "npo", "other")]
    found = Records("", {}, (run("atwu", 1, {}), run("mine", 1, {})), {"variants": variants})
    assert not_compared(found, table) == "mine, other (no published numbers); npo (no result)"
    assert not_compared(Records("", {}, (run("atwu", 1, {}),)), table) == ""


def test_a_comparison_needs_a_folder_and_a_table(tmp_path):
    (tmp_path / "mine.yaml").write_text("methods: all\n")
    with pytest.raises(NotADirectoryError, match=r"mine\.yaml is a file; give the output folder of `atwu study run`"):
        run_cli(["study", "compare", str(tmp_path / "mine.yaml")])
    run("atwu", 1, {}).result.write(tmp_path / "atwu-s1.json")
    with pytest.raises(ValueError, match=f"{tmp_path} names no published table; .*--table: headline-rwku, "):
        run_cli(["study", "compare", str(tmp_path)])


@pytest.mark.parametrize(
    ("difference", "outcome"),
    [
        ((2.0, 1.0, 3.0), "holds"),
        ((2.0, -1.0, 5.0), "holds, within noise"),
        ((2.0, 0.0, 4.0), "holds, within noise"),
        ((2.0, NAN, NAN), "holds, within noise"),
        ((0.0, -1.0, 1.0), "open"),
        ((NAN, NAN, NAN), "open"),
        (None, "open"),
        ((-2.0, -5.0, 1.0), "reversed, within noise"),
        ((-2.0, -3.0, -1.0), "reversed"),
    ],
)
def test_outcome_of_one_pair(difference, outcome):
    assert outcome_of(difference, direction="up") == outcome
    mirrored = difference and (-difference[0], -difference[2], -difference[1])
    assert outcome_of(mirrored, direction="down") == outcome


def test_four_methods_worked_out_by_hand():
    published = {"orla": 80.0, "tavi": 60.0, "venn": 60.0, "brook": 20.0, "kelbury": 99.0}
    ours = {"orla": 70.0, "tavi": 75.0, "venn": 40.0, "brook": 30.0, "other": 1.0}
    differences = {
        ("orla", "tavi"): (-5.0, -9.0, -1.0),
        ("orla", "venn"): (30.0, 20.0, 40.0),
        ("orla", "brook"): (40.0, 35.0, 45.0),
        ("tavi", "brook"): (45.0, 40.0, 50.0),
        ("venn", "brook"): (10.0, -2.0, 22.0),
    }
    found = orderings(ours, published, lambda *pair: differences[pair], direction="up")
    assert {(pair.better, pair.worse): pair.outcome for pair in found.pairs} == {
        ("orla", "tavi"): "reversed",
        ("orla", "venn"): "holds",
        ("orla", "brook"): "holds",
        ("tavi", "brook"): "holds",
        ("venn", "brook"): "holds, within noise",
    }
    (pair,) = [pair for pair in found.pairs if (pair.better, pair.worse) == ("orla", "venn")]
    assert (pair.published, pair.ours) == (20.0, (30.0, 20.0, 40.0))
    # 4 concordant and 1 discordant of 6 pairs, 1 tied in the published table: (4 - 1) / sqrt(5 * 6).
    assert found.tau == pytest.approx(3 / math.sqrt(30))
    assert found.reading == (
        "published orderings 5: holds 3, holds, within noise 1, reversed 1; Kendall's tau 0.55; "
        "published best: orla, number 2 of 4 here"
    )


def test_lower_values_win_if_less_is_better():
    published, ours = {"orla": 0.03, "tavi": 0.3}, {"orla": 0.1, "tavi": 0.2}
    found = orderings(ours, published, lambda first, second: (ours[first] - ours[second], NAN, NAN), direction="down")
    (pair,) = found.pairs
    assert (pair.better, pair.worse, pair.outcome) == ("orla", "tavi", "holds, within noise")
    assert pair.published == pytest.approx(-0.27)
    assert found.tau == 1
    assert found.reading.startswith("published orderings 1: holds, within noise 1; Kendall's tau 1.00; ")


def test_too_few_values_to_compare():
    empty = orderings({"orla": 1.0}, {"orla": 2.0, "tavi": 1.0}, lambda *pair: None, direction="up")
    assert (empty.pairs, empty.tau) == ((), None)
    assert "No two labels" in empty.reading
    tied = orderings(
        {"orla": 1.0, "tavi": 2.0, "venn": NAN}, {"orla": 5.0, "tavi": 5.0, "venn": 1.0}, {}, direction="up"
    )
    assert (tied.pairs, tied.tau) == ((), None)
    unasked = orderings({"orla": 1.0, "tavi": 2.0}, {"orla": 5.0, "tavi": 4.0}, lambda *pair: None, direction="up")
    assert "open 1" in unasked.reading
