"""The published tables are consistent in themselves and with each other."""

from __future__ import annotations

import pytest

from atwu.experiments.published_comparison import published_table, published_tables
from atwu.methods.component_registry import WEIGHTINGS
from atwu.methods.method_table import METHODS

TABLES = [published_table(name) for name in published_tables()]
PERCENT = ("J_W", "J_AVG", "FQ", "RD", "UQ", "MMLU", "win_rate")
VARIANTS = {
    *("none", "l2", "budget", "budget_l2", "entropy", "entropy_l2", "entropy_budget", "entropy_budget_l2"),
    *("pretrain_frozen", "pretrain_unfrozen", "trained_frozen", "every_1", "every_5", "every_10", "joint"),
}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_is_complete(table):
    names = set(METHODS) | set(WEIGHTINGS) | VARIANTS | {"original", "retain-only"}
    for label, row in table.rows.items():
        assert label in names or label.removesuffix(label[-2:]) in METHODS
        if table.name not in ("score-auroc", "rwku-other-losses"):
            assert set(row) == set(table.metrics)
        assert all(0 <= row[metric] <= 100 for metric in PERCENT if metric in row)
    assert table.title.isprintable()
    assert len(table.title) > 15


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_differences_and_marks_follow_from_the_columns(table):
    original = table.rows.get("original", {})
    for label, row in table.rows.items():
        for whole, kept, left in (
            ("ES_delta", "ES_retain", "ES_forget"),
            ("N_delta", "rougeL_neighbour", "rougeL_forget"),
        ):
            if whole in row:
                assert row[whole] == pytest.approx(row[kept] - row[left], abs=0.0016), label
        if {"FQ", "RD", "UQ"} <= row.keys():
            assert row["UQ"] == pytest.approx(max(row["FQ"] - row["RD"], 0), abs=0.11), label
        # Printed scores and quotients are rounded; the original model's J_W is 90 to 100, its J_AVG 41 to 69.
        for relative, score in (("FQ", "J_W"), ("RD", "J_AVG")):
            if score in row and label != "original":
                assert row[relative] == pytest.approx(max(0, 100 * (1 - row[score] / original[score])), abs=0.25), label
        marked = {metric for name, metric in table.degraded if name == label}
        rule = set()
        if "MMLU" in row:
            rule |= {"MMLU"} if original["MMLU"] - row["MMLU"] > 2.01 else set()
            rule |= {"repetitiveness"} if row["repetitiveness"] < 0.95 * original["repetitiveness"] else set()
            rule |= {"win_rate"} if row["win_rate"] < 45 else set()
        assert marked == rule, label


def test_tables_of_the_same_runs_agree():
    for part, whole in (
        ("headline-tofu-8b", "tofu-forget10-8b"),
        ("headline-rwku", "rwku-panel"),
        ("token-weighting", "tofu-forget10-1b"),
        ("oracle-loss", "tofu-forget10-1b"),
        ("rwku-other-losses", "rwku-panel"),
    ):
        few, many = published_table(part), published_table(whole)
        for label in few.rows.keys() & many.rows.keys():
            assert {key: value for key, value in few.rows[label].items() if key in many.metrics} == {
                key: value for key, value in many.rows[label].items() if key in few.metrics
            }
    ablations = [published_table(name).rows for name in ("regularisers", "scorer-state", "update-frequency")]
    assert ablations[0]["entropy_budget_l2"] == ablations[1]["atwu"] == ablations[2]["every_5"]
    assert published_table("headline-tofu-8b").degraded == {
        *(("dpo", "MMLU"), ("dpo", "win_rate"), ("jensun", "repetitiveness"), ("jensun", "win_rate"))
    }


def test_the_learning_rate_of_a_method_is_marked_in_its_trials():
    panel = published_table("rwku-panel").rows
    used = {label[:-2]: row for label, row in published_table("rwku-rates").rows.items() if row["used"]}
    assert used.keys() == panel.keys() - {"original"}
    for name, row in used.items():
        assert row["rougeL_forget"] == panel[name]["rougeL_forget"]
        assert row["N_delta"] == pytest.approx(panel[name]["N_delta"], abs=0.0011)


def test_gains_are_differences_to_the_unweighted_loss():
    panel, other = published_table("rwku-panel").rows, published_table("rwku-other-losses").rows
    rivals = {"atwu_dpo": "dpo", "atwu_npo": "npo", "atwu_simnpo": "simnpo", "atwu": "wga"}
    gains = {label: row["UQ_gain"] for label, row in other.items() if "UQ_gain" in row}
    assert gains.keys() == rivals.keys()
    for label, gain in gains.items():
        assert gain == pytest.approx(other[label]["UQ"] - panel[rivals[label]]["UQ"], abs=0.11)


def test_columns_and_errors():
    auroc = published_table("score-auroc")
    exact = {label: row["auroc"] for label, row in auroc.rows.items() if "low" not in row}
    assert exact == {"uniform": 0.5, "saturation": 0.33, "scorer": 0.75}
    assert auroc.rows["entropy"] == {"auroc": 0.675, "low": 0.67, "high": 0.68}
    bounded = [row for row in auroc.rows.values() if "low" in row]
    assert all(row["auroc"] == pytest.approx((row["low"] + row["high"]) / 2) for row in bounded)
    assert "older version" in published_table("regularisers").notes[0]
    with pytest.raises(ValueError, match=r"'headline'.*'headline-rwku'"):
        published_table("headline")
