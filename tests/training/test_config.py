"""Training configs: presets, and values rejected before anything is loaded."""

from __future__ import annotations

import dataclasses

import pytest

from atwu import UnlearnConfig


def test_configurations_set_only_options_that_are_unset():
    paper = UnlearnConfig(output_dir="x", configuration="paper").recipe()
    scores = paper.scores
    assert (scores.hidden_position, scores.scorer_bias, paper.forget_component.detach_saturation) == (
        "own",
        False,
        False,
    )
    assert (scores.budget, scores.lambda_budget, scores.scorer_schedule) == ("soft", 15.0, "constant")
    assert scores.gamma(paper.factors.forget_weight) == 3.0  # the forget weight of the method
    authors = UnlearnConfig(output_dir="x", configuration="authors", budget="soft").recipe().scores
    assert (authors.hidden_position, authors.budget, authors.gamma(3.0)) == ("own", "soft", 1.0)
    assert UnlearnConfig(output_dir="x").recipe().scores.hidden_position == "pred"


def test_options_can_be_given_as_a_mapping():
    one = UnlearnConfig(output_dir="x", method="wga", beta=2.0, scorer_every=None)
    other = UnlearnConfig(output_dir="x", method="wga", component_options={"beta": 2.0})
    assert one.component_options == other.component_options == {"beta": 2.0}
    assert one.recipe() == other.recipe()
    assert dataclasses.replace(one, seed=1).recipe() == one.recipe()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "atwoo"}, "'atwoo'.*'atwu'"),
        ({"configuration": "papers"}, "configuration.*ours, authors.*paper"),
        ({"hidden_position": "next"}, "hidden_position.*own, pred.*'next'"),
        ({"budget": "hard"}, "budget.*ste, soft.*'hard'"),
        ({"rho": 1.5}, r"rho.* 0 .*1.* 1\.5"),
        ({"scorer_every": 0}, "scorer_every.*>= 1.* 0"),
        ({"scorer_gamma": "much"}, "scorer_gamma.*>= 0.*'forget_weight'"),
        ({"lambda_entropy": float("nan")}, "lambda_entropy.*finite"),
        ({"scorer_gamma": "nan"}, "scorer_gamma.*finite"),
        ({"lambda_l2": -0.1}, "lambda_l2.*>= 0"),
        ({"save_only_model": True}, "save_only_model"),
        ({"max_length": 2}, "max_length.* 8"),
        ({"system": " "}, "system.*empty"),
        ({"method": "grad_diff", "beta": 2.0}, "'beta'"),
        ({"lerning_rate": 1e-5}, "'lerning_rate'.*'learning_rate'"),
        ({"forms": "blanks"}, "'blanks'.*blank"),
        ({"method": "npo", "scorer_prior": "rarity"}, "scorer_prior.*'npo'"),
        ({"method": "wga", "scorer_min_updates": 5}, "scorer_min_updates.*'wga'"),
        ({"method": "simnpo", "score_scale": 2.0}, "'simnpo'.*'score_scale'"),
        ({"method": "atwu_simnpo", "score_scale": 0.0}, r"score_scale.*> 0.* 0\.0"),
        ({"scorer_from": "x", "scorer_prior": "rarity"}, "prior"),
        ({"scorer_procedure": "frozen"}, "frozen scorer"),
        ({"scorer_procedure": "joint", "scorer_min_updates": 3}, "joint.*scorer_min_updates"),
        ({"scorer_prior": "rare"}, "scorer_prior.*none, rarity"),
        ({"scorer_procedure": "frozen", "scorer_prior": "rarity", "scorer_prior_strength": 0.0}, "frozen scorer"),
        ({"method": "wga", "learning_rate": 0.0}, r"learning_rate.* 0\.0"),
        ({"scorer_procedure": "frozen", "scorer_pretrain": True, "learning_rate": 0.0}, r"learning_rate.* 0\.0"),
        ({"sam_radius": 0.1, "weight_noise": 0.1}, "sam_radius.*weight_noise"),
        ({"sam_radius": -1.0}, "sam_radius.* 0.* -1"),
        ({"weight_noise": float("inf")}, "weight_noise.*finite"),
        ({"sam_radius": 0.1, "fp16": True}, "fp16"),
        ({"rectify_gradient": 1.5}, "rectify_gradient.* 1.*1.5"),
        ({"rectify_gradient": 0.8, "method": "grad_ascent"}, "rectify_gradient.*retain loss.*grad_ascent"),
        ({"rectify_gradient": 0.8, "fp16": True}, "fp16"),
        ({"collapse_components": -1}, "collapse_components.* 0.* -1"),
        ({"collapse_components": 1}, "collapse_components=1 changes nothing"),
        ({"collapse_components": 8, "lora_r": 4}, "collapse_components.*lora_r"),
        ({"collapse_components": 8, "rectify_gradient": 0.8}, "collapse_components.*rectify_gradient"),
        ({"collapse_components": 8, "fp16": True}, "fp16"),
    ],
)
def test_wrong_values_are_rejected(changes, message):
    with pytest.raises(ValueError, match=message):
        UnlearnConfig(output_dir="x", **changes)
