"""Metrics of several sets and models, from row values whose means are known."""

from __future__ import annotations

import numpy as np
import pytest

from atwu.evaluation.aggregate import overall
from atwu.evaluation.intervals import ModelComparison, RowMetrics
from tests.evaluation.conftest import row_values

PEOPLE = [f"person {index // 20}" for index in range(1000)]


def percent(hits, seed=0):
    return 100.0 * np.random.default_rng(seed).permutation(np.arange(1000) < 10 * hits)


@pytest.fixture
def judged():
    def side(worst, mean):
        return RowMetrics(
            {
                "forget": row_values({"J_P": percent(worst) / 2, "J_W": percent(worst)}, PEOPLE),
                "retain": row_values({"J_AVG": percent(mean, 1)}, PEOPLE),
            }
        )

    return side


def test_fq_rd_uq_of_a_published_row(judged):
    found = overall(ModelComparison(judged(14.5, 40.3), original=judged(93.1, 43.0)))
    assert {name: value.value for name, value in found.items()} == pytest.approx(
        {"FQ": 84.4253, "RD": 6.2791, "UQ": 78.1463}, abs=1e-4
    )
    assert [found[name].direction for name in ("FQ", "RD", "UQ")] == ["up", "down", "up"]
    for value in found.values():
        assert value.low < value.value < value.high
        assert (value.n, value.clusters, value.digits) == (1000, 50, 1)


def test_metrics_without_their_models_or_columns_are_left_out(judged):
    this = judged(14.5, 40.3)
    assert overall(ModelComparison(this)) == {}
    forget_only = RowMetrics({"forget": this.rows["forget"]})
    assert set(overall(ModelComparison(this, original=forget_only))) == {"FQ"}
    assert set(overall(ModelComparison(forget_only, original=this))) == {"FQ"}
    nothing = row_values({"J_W": [None, None]})
    assert overall(ModelComparison(RowMetrics({"forget": nothing}), original=this)) == {}


def test_fq_is_undefined_if_the_original_model_knew_nothing(judged):
    found = overall(ModelComparison(judged(14.5, 40.3), original=judged(0, 43.0)))
    assert (found["FQ"].value, found["FQ"].low, found["UQ"].value) == (None, None, None)
    assert found["RD"].value == pytest.approx(6.2791, abs=1e-4)


def test_es_delta_is_retain_minus_forget():
    rows = {
        "forget": row_values({"extraction_strength": [0.1, 0.3, 0.2]}),
        "retain": row_values({"extraction_strength": [0.9, 0.7, None], "extraction_strength_floored": [1, 1, 1]}),
    }
    found = overall(ModelComparison(RowMetrics(rows)))
    assert set(found) == {"ES_delta"}
    assert found["ES_delta"].value == pytest.approx(0.6)
    assert (found["ES_delta"].n, found["ES_delta"].clusters) == (2, 3)
    assert found["ES_delta"].low <= 0.6 <= found["ES_delta"].high


def test_model_utility_of_nine_means():
    rows = {}
    for split, probability, means in (
        ("retain", "probability", (0.9, 0.8, 0.5)),
        ("real_authors", "probability_with_options", (0.6, 0.7, 0.5)),
        ("world_facts", "probability_with_options", (0.6, 0.8, 0.4)),
    ):
        names = (probability, "rouge_l_recall", "truth_ratio")
        rows[split] = row_values({name: [mean - 0.1, mean + 0.1] for name, mean in zip(names, means, strict=True)})
    rows["forget"] = row_values({key: [0.0, 0.0] for key in rows["real_authors"].metrics})
    rows["real_authors"].metrics["probability"] = (0.01, 0.01)
    found = overall(ModelComparison(RowMetrics(rows)))["model_utility"]
    assert found.value == pytest.approx(0.605123, abs=1e-6)
    assert found.low < found.value < found.high


def test_forget_quality_is_the_ks_test_on_raw_ratios():
    def side(ratios):
        return RowMetrics({"forget": row_values({"truth_ratio_raw": ratios})})

    this = side([0.1, 0.2, None, 0.3, 0.4])
    found = overall(ModelComparison(this, retain_only=side([0.3, 0.5, 0.6, 0.7])))
    assert found["forget_quality_p"].value == pytest.approx(0.228571, abs=1e-6)
    assert found["forget_quality_distance"].value == pytest.approx(0.75)
    assert found["forget_quality_log10_p"].value == pytest.approx(np.log10(8 / 35))
    assert found["forget_quality_p"].low is None
    assert found["forget_quality_p"].n == 4
    assert overall(ModelComparison(this)) == {}


def attacked(forget, holdout):
    return RowMetrics({"forget": row_values({"mia_loss": forget}), "holdout": row_values({"mia_loss": holdout})})


def test_privleak_and_the_reference_attack_compare_with_the_retain_only_model():
    this = attacked([0.1, 0.2, 0.5], [0.4, 0.6, 0.9])
    other = attacked([0.3, 0.1, 0.7], [0.5, 0.1, 0.2])
    found = overall(ModelComparison(this, retain_only=other))
    forget, holdout = [-0.2, 0.1, -0.2], [-0.1, 0.5, 0.7]
    pairs = [(f < h) + (f == h) / 2 for f in forget for h in holdout]
    assert found["mia_auc_reference"].value == pytest.approx(np.mean(pairs))
    auc = np.mean([(f < h) + (f == h) / 2 for f in (0.3, 0.1, 0.7) for h in (0.5, 0.1, 0.2)])
    assert found["privleak_loss"].value == pytest.approx(100 * ((1 - 8 / 9) - (1 - auc)) / (1 - auc))
    assert "privleak_reference" not in found
    same = overall(ModelComparison(this, retain_only=this))
    assert same["privleak_loss"].value == pytest.approx(0, abs=1e-6)
    assert same["mia_auc_reference"].value == pytest.approx(0.5)


def test_recovery_is_measured_on_rows_that_the_attack_did_not_train_on():
    def side(**columns):
        return RowMetrics({"forget": row_values(columns)})

    attacked_columns = {"extraction_strength": [0.4, 0.1, 0.1], "extraction_strength@int4": [None, 0.5, 0.3]}
    original = side(extraction_strength=[0.2, 0.9, 0.9])
    found = overall(ModelComparison(side(**attacked_columns), original=original))
    assert found["recovered_extraction_strength@int4"].value == pytest.approx(100 * 0.3 / 0.8)
    assert found["recovered_extraction_strength@int4"].direction == "down"
    assert found["recovered_extraction_strength@int4"].n == 2
    assert overall(ModelComparison(side(**attacked_columns))) == {}


def test_recovery_uses_rows_with_a_verdict_for_every_model():
    def side(**columns):
        return RowMetrics({"forget": row_values({name.replace("_at_", "@"): found for name, found in columns.items()})})

    this = side(J_P=[0.0, None, 50.0, 0.0, 0.0], J_P_at_int4=[50.0, 100.0, 50.0, None, 100.0])
    original = side(J_P=[100.0, 100.0, 100.0, 0.0, None])
    found = overall(ModelComparison(this, original=original))["recovered_J_P@int4"]
    assert (found.value, found.n) == (pytest.approx(100 * 25 / 75), 2)


def test_rwku_sums():
    means = {"fb": 0.05, "qa": 0.04, "aa": 0.06, "neighbour_fb": 0.55, "neighbour_qa": 0.574}
    columns = {}
    for place, (kind, mean) in enumerate(means.items()):
        column = [None] * 10
        column[2 * place : 2 * place + 2] = [mean - 0.02, mean + 0.02]
        columns[f"{kind}_official"] = column
    subjects = ["Orla Venn", "Tavi Brook"] * 5
    found = overall(ModelComparison(RowMetrics({"rwku": row_values(columns, subjects)})))
    assert {name: value.value for name, value in found.items()} == pytest.approx(
        {"forget_all_official": 0.05, "neighbour_all_official": 0.562, "N_delta_official": 0.512}
    )
    assert found["N_delta_official"].low <= 0.512 <= found["N_delta_official"].high
    del columns["aa_official"]
    assert overall(ModelComparison(RowMetrics({"rwku": row_values(columns, subjects)}))) == {}


def test_unscored_answers_of_the_parts_are_added_up():
    rows = {
        "forget": row_values({"J_W": [0.0, 100.0]}, unscored={"J_W": 2}),
        "retain": row_values({"J_AVG": [50.0, 100.0]}, unscored={"J_AVG": 3}),
    }
    found = overall(ModelComparison(RowMetrics(rows), original=RowMetrics(rows)))
    assert [found[name].unscored for name in ("FQ", "RD", "UQ")] == [2, 3, 5]
