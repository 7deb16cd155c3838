"""The run configuration: presets, and refusals before anything is loaded."""

from __future__ import annotations

import pytest

from atwu import UnlearnConfig


def test_presets_fill_only_what_is_unset():
    paper = UnlearnConfig(output_dir="x", preset="paper")
    assert (paper.hidden_position, paper.scorer_bias, paper.detach_saturation) == ("own", False, False)
    assert (paper.budget, paper.lambda_budget, paper.scorer_schedule) == ("soft", 15.0, "constant")
    assert paper.scorer_factor() == 3.0  # the forget weight of the method
    assert not paper.recipe().detach_saturation
    authors = UnlearnConfig(output_dir="x", preset="authors", budget="soft")
    assert (authors.hidden_position, authors.budget, authors.scorer_factor()) == ("own", "soft", 1.0)
    assert UnlearnConfig(output_dir="x", preset="paper", forget_weight=0.5).scorer_factor() == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "atwoo"}, "Did you mean 'atwu'"),
        ({"preset": "papers"}, "Did you mean 'paper'"),
        ({"hidden_position": "next"}, "hidden_position must be one of own, pred, got 'next'"),
        ({"budget": "hard"}, "budget must be one of ste, soft"),
        ({"rho": 1.5}, "rho is a share of tokens, between 0 and 1, got 1.5"),
        ({"scorer_every": 0}, "scorer_every counts optimizer steps"),
        ({"scorer_gamma": "much"}, "scorer_gamma must be a finite number >= 0 or 'forget_weight'"),
        ({"lambda_entropy": float("nan")}, "lambda_entropy must be a finite number"),
        ({"scorer_gamma": "nan"}, "scorer_gamma must be a finite number"),
        ({"scorer_momentum": -0.1}, "scorer_momentum must be a finite number >= 0"),
        ({"save_only_model": True}, "leaves nothing to resume from"),
        ({"max_length": 2}, "max_length must be at least 8"),
        ({"system": " "}, "system is empty"),
        ({"method": "grad_diff", "beta": 2.0}, "has no 'beta'"),
    ],
)
def test_wrong_values_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        UnlearnConfig(output_dir="x", **changes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "npo", "scorer_prior": "rarity"},
            "scorer_prior is for methods with learned weights; 'npo' has none",
        ),
        ({"method": "wga", "scorer_min_updates": 5}, "scorer_min_updates is for methods with learned weights"),
        (
            {"method": "simnpo", "score_scale": 2.0},
            "score_scale multiplies learned scores in SimNPO; .* 'simnpo' has none",
        ),
        ({"method": "atwu_simnpo", "score_scale": -3.0}, "score_scale must be a finite number > 0, got -3.0"),
        ({"method": "atwu_simnpo", "score_scale": 0.0}, "score_scale must be a finite number > 0, got 0.0"),
        ({"method": "atwu", "scorer_from": "x", "scorer_prior": "rarity"}, "brings its own prior"),
        (
            {"method": "atwu", "scorer_procedure": "frozen", "scorer_prior": "rarity", "scorer_prior_strength": 0.0},
            "a frozen scorer needs a start",
        ),
    ],
)
def test_options_without_effect_are_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        UnlearnConfig(output_dir=str(tmp_path), use_cpu=True, **settings)


def test_presets_scale_scores_only_where_there_are_some(tmp_path):
    values = {
        (method, preset): UnlearnConfig(output_dir=str(tmp_path), use_cpu=True, method=method, preset=preset)
        .recipe()
        .values["score_scale"]
        for method in ("simnpo", "atwu_simnpo")
        for preset in ("default", "authors", "paper")
    }
    assert values == {
        ("simnpo", "default"): 1.0,
        ("simnpo", "authors"): 1.0,
        ("simnpo", "paper"): 1.0,
        ("atwu_simnpo", "default"): 1.0,
        ("atwu_simnpo", "authors"): 2.0,
        ("atwu_simnpo", "paper"): 1.0,
    }
