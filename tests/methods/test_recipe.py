"""Recipes: valid combinations of components, their hyperparameters, and errors for invalid choices."""

from __future__ import annotations

import pytest

from atwu.methods.component import FixedWeighting, options_of_component
from atwu.methods.component_registry import FORGET_LOSSES, WEIGHTINGS
from atwu.methods.recipe import recipe


def test_all_valid_combinations_of_weighting_and_loss():
    for weighting, weights in WEIGHTINGS.items():
        for forget_loss, loss in FORGET_LOSSES.items():
            if loss.reduction == "selected" and not issubclass(weights, FixedWeighting):
                continue
            if loss.trained_answer == "alternate" and weighting != "uniform":
                continue
            if loss.all_positions is True and weighting == "labels":
                continue
            retain_loss = "js_first" if loss.balanced else "nll"
            decided = recipe("grad_diff", weighting=weighting, forget_loss=forget_loss, retain_loss=retain_loss)
            taken = [option for part in (weights, loss) for option in options_of_component(part) if option.number]
            wanted = {option.name for option in taken if weighting == "scorer" or not option.learned}
            assert set(decided.values) == {"forget_weight", "retain_weight"} | wanted


def test_hyperparameters_that_were_given_override_published_ones():
    assert recipe("wga", beta=1.0, forget_weight=None).values == recipe("wga").values | {"beta": 1.0}
    assert recipe("atwu", retain_loss="none").values.keys() == {"forget_weight", "beta"}
    assert recipe("atwu", weighting="entropy", forget_loss="satga").name == "entropy x satga"
    assert recipe("grad_diff", retain_loss="activation", layer=2).values["layer"] == 2
    assert recipe("wga", beta=0.0).values["beta"] == 0.0


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"method": "atwu", "forget_loss": "npo"}, {"forget_weight": 0.12, "retain_weight": 4.10, "beta": 0.10}),
        ({"method": "etw", "forget_loss": "npo"}, {"forget_weight": 0.12, "temperature": 0.16, "beta": 0.10}),
        ({"method": "atwu", "forget_loss": "npo", "beta": 0.5}, {"forget_weight": 0.12, "beta": 0.5}),
        ({"method": "atwu", "forget_loss": "ceu"}, {"forget_weight": 1.0, "retain_weight": 0.50, "kept_start": 1}),
        ({"method": "npo", "forget_loss": "logit_margin"}, {"forget_weight": 1.0, "retain_weight": 4.10}),
        ({"method": "undial", "forget_loss": "weighted_self_distillation"}, {"forget_weight": 1.0, "beta": 10.0}),
        ({"method": "npo", "retain_loss": "kl"}, {"forget_weight": 0.12, "retain_weight": 4.10, "beta": 0.10}),
    ],
)
def test_a_replaced_forget_loss_brings_the_values_of_the_method_that_has_it(given, values):
    decided = recipe(**given)
    assert {name: decided.values[name] for name in values} == values


@pytest.mark.parametrize(
    ("text", "names", "combination"),
    [
        ("entropy", ("entropy",), None),
        ("scorer*rarity", ("scorer", "rarity"), "product"),
        ("importance + entropy", ("importance", "entropy"), "mean_of_ranks"),
    ],
)
def test_combined_weightings(text, names, combination):
    decided = recipe("atwu", weighting=text)
    assert (decided.weighting_names, decided.combination) == (names, combination)
    assert (decided.scores is not None) == ("scorer" in names)


def test_a_weighting_may_need_retain_rows_that_the_loss_does_not():
    decided = recipe("grad_ascent", weighting="importance*rarity")
    assert decided.retain_component is None
    assert decided.reads_retain
    assert not recipe("grad_ascent").reads_retain
    assert recipe("atwu", retain_loss="none", scorer_prior="rarity").reads_retain


def test_default_layer_of_a_small_model_is_its_last():
    assert recipe("rmu").layer(32) == 4
    assert recipe("rmu").layer(2) == 1
    assert recipe("rmu", layer=1).layer(2) == 1
    with pytest.raises(ValueError, match=r"layer.* 0 .* 1.* 4"):
        recipe("rmu", layer=4).layer(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "atvu"}, "'atvu'.*grad_ascent, .*'atwu'"),
        ({"method": "atwu", "weighting": "entropi"}, "weighting.*'entropi'.*'entropy'"),
        ({"method": "atwu", "weighting": "scorer*rarety"}, "weighting.*'rarety'.*'rarity'"),
        ({"method": "atwu", "forget_loss": "satgaplus"}, "forget.loss.*'satgaplus'.*'satga_plus'"),
        ({"method": "atwu", "retain_loss": "nil"}, "retain.loss.*'nil'.*'nll'"),
        ({"method": "grad_diff", "beta": 1.0}, "'beta'.*forget_weight, retain_weight"),
        ({"method": "grad_ascent", "retain_weight": 1.0}, "'retain_weight'.*forget_weight"),
        ({"method": "atwu", "betta": 1.0}, "'betta'.*'beta'"),
        ({"method": "wga", "beta": -1.0}, r"beta.*>= 0.* -1\.0"),
        ({"method": "wga", "beta": float("nan")}, "beta.*>= 0.* nan"),
        ({"method": "wga", "beta": float("inf")}, "beta.*>= 0.* inf"),
        ({"method": "npo", "beta": 0.0}, r"beta.*> 0.* 0\.0"),
        ({"method": "etw", "temperature": 0.0}, r"temperature.*> 0.* 0\.0"),
        ({"method": "grad_diff", "weighting": "importance*entropy*rarity"}, r"importance\*entropy\*rarity"),
        ({"method": "atwu", "weighting": "scorer*scorer"}, "scorer.*twice"),
        ({"method": "atwu", "weighting": "scorer+entropy"}, r"gradient.*'scorer\*"),
        ({"method": "atwu", "forget_loss": "masked_ga"}, "'masked_ga'.*'scorer'"),
        ({"method": "fundial", "weighting": "nouns*importance"}, "'nouns.importance'"),
        ({"method": "jensun", "weighting": "labels", "configuration": "authors"}, "'labels x js_refusal x js'.*legacy"),
        ({"method": "rmu", "layer": 4.7}, r"layer.* 4\.7"),
        ({"method": "wga", "forget_loss": "refusal"}, "'refusal'.*'saturation'"),
    ],
)
def test_errors_of_invalid_choices(arguments, message):
    with pytest.raises(ValueError, match=message):
        recipe(arguments.pop("method"), **arguments)
