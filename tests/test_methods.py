"""The method table and the choice of a recipe from it."""

from __future__ import annotations

import pytest

from atwu.methods import FORGET_LOSSES, HYPERPARAMETERS, METHODS, RETAIN_LOSSES, WEIGHTINGS, recipe

EXPECTED = {"grad_ascent", "grad_diff", "wga", "satimp", "satga", "gt_ga", "gt_satga", "atwu_ga", "atwu_satga", "atwu"}


def test_every_row_is_made_of_known_parts_and_numbers():
    assert set(METHODS) == EXPECTED
    for name, row in METHODS.items():
        assert row.weighting in WEIGHTINGS
        assert row.forget_loss in FORGET_LOSSES
        assert row.retain_loss in RETAIN_LOSSES
        decided = recipe(name)
        assert set(decided.values) <= set(HYPERPARAMETERS)
        assert set(row.defaults) <= set(decided.values)
        assert decided.name == name


def test_any_weighting_goes_under_any_tokenwise_loss():
    for weighting in WEIGHTINGS:
        for forget_loss, loss in FORGET_LOSSES.items():
            if loss.over_selected and weighting != "labels":
                continue
            decided = recipe("grad_diff", weighting=weighting, forget_loss=forget_loss)
            wanted = {"forget_weight", "retain_weight", *WEIGHTINGS[weighting].hyperparameters, *loss.hyperparameters}
            assert set(decided.values) == wanted


def test_given_numbers_win_over_published_ones():
    assert recipe("wga").values == {"forget_weight": 1.16, "retain_weight": 0.79, "beta": 2.14}
    assert recipe("wga", beta=1.0, forget_weight=None).values["beta"] == 1.0
    assert recipe("atwu", retain_loss="none").values.keys() == {"forget_weight", "beta"}
    assert recipe("atwu", weighting="entropy", forget_loss="satga").name == "entropy+satga"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "atvu"}, "unknown method 'atvu'; choose from grad_ascent, .* Did you mean 'atwu'?"),
        ({"method": "atwu", "weighting": "entropi"}, "unknown weighting .* Did you mean 'entropy'?"),
        ({"method": "grad_diff", "beta": 1.0}, "has no 'beta'; it takes forget_weight, retain_weight"),
        ({"method": "atwu", "betta": 1.0}, "unknown hyperparameter 'betta'; .* Did you mean 'beta'?"),
        ({"method": "wga", "beta": -1.0}, "beta must be a finite number >= 0, got -1.0"),
        ({"method": "wga", "beta": float("nan")}, "beta must be a finite number"),
        ({"method": "atwu", "forget_loss": "masked_ga"}, "fixed 0/1 selection; weighting 'scorer' has none"),
    ],
)
def test_wrong_choices_say_what_is_allowed(arguments, message):
    with pytest.raises(ValueError, match=message):
        recipe(arguments.pop("method"), **arguments)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("grad_diff", {"retain_weight": 0.80, "forget_weight": 0.12}),
        ("wga", {"retain_weight": 0.79, "forget_weight": 1.16, "beta": 2.14}),
        ("satimp", {"retain_weight": 0.49, "forget_weight": 0.87, "beta1": 1.43, "beta2": 0.17}),
        ("atwu", {"retain_weight": 0.50, "forget_weight": 3.00, "beta": 7.00}),
    ],
)
def test_published_values(name, values):
    assert recipe(name).values == values
    assert not METHODS[name].borrowed
