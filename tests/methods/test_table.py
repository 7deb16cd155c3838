"""The table of methods: components and published hyperparameters."""

from __future__ import annotations

import subprocess
import sys

import pytest

from atwu.methods.component import Range, options_of_component
from atwu.methods.component_registry import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS, component_options
from atwu.methods.method_table import CITATIONS, METHODS
from atwu.methods.recipe import recipe, split_weighting

NAMES = {
    *("grad_ascent", "grad_diff", "dpo", "npo", "simnpo", "jensun", "rmu", "undial", "fundial", "wga", "satimp", "etw"),
    *("seul", "su_llm", "su_ngram", "satga", "gt_ga", "gt_satga"),
    *("atwu_ga", "atwu_satga", "atwu", "atwu_dpo", "atwu_npo", "atwu_simnpo"),
    *("ceu", "me", "idk_ap", "jensun_plus", "bs_t", "bs_s", "flat", "altpo", "relearn", "lunar", "duet", "asu", "pdu"),
}


def test_the_table_has_these_methods():
    assert set(METHODS) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_method_has_known_components_hyperparameters_and_references(name):
    row, decided = METHODS[name], recipe(name)
    for part in split_weighting(row.weighting)[0]:
        assert part in WEIGHTINGS
    assert row.forget_loss in FORGET_LOSSES
    assert row.retain_loss in RETAIN_LOSSES
    assert set(decided.values) <= {name for name, option in component_options().items() if option.number}
    assert set(row.defaults) <= set(decided.values)
    assert set(row.search) <= set(decided.values)
    assert decided.name == name
    assert len(CITATIONS[row.cite]) > 30
    for key, value in decided.values.items():
        where = row.search.get(key, decided.options[key].search)
        # The published forget weight of ETW is outside its published range.
        assert where is None or where.low <= value <= where.high or (name, key) == ("etw", "forget_weight"), (
            key,
            value,
        )


def test_components_have_formula_and_options():
    for part in (*WEIGHTINGS.values(), *FORGET_LOSSES.values(), *filter(None, RETAIN_LOSSES.values())):
        assert part.formula
        for option in options_of_component(part):
            assert option.help
            assert option.value(option.default) == option.default
            assert option.kind is component_options()[option.name].kind
    assert set(CITATIONS) == {row.cite for row in METHODS.values()}


def test_published_searches():
    linear = {
        (name, key)
        for name, row in METHODS.items()
        for key in recipe(name).values
        if (where := row.search.get(key, recipe(name).options[key].search)) is not None and not where.log
    }
    assert linear == {
        *((name, key) for name in ("simnpo", "atwu_simnpo") for key in ("beta", "delta")),
        *((name, "beta") for name in ("atwu", "atwu_satga")),
        ("satimp", "beta1"),
        *((name, "layer") for name in ("rmu", "lunar")),
        ("ceu", "kept_start"),
        *((name, "belief_weight") for name in ("bs_t", "bs_s")),
        ("asu", "attention_temperature"),
    }
    assert recipe("fundial").options["beta"].search == Range(1.0, 30.0)
    assert recipe("npo").options["beta"].search == recipe("atwu_npo").options["beta"].search == Range(0.05, 0.2)
    assert METHODS["atwu_satga"].search == {"beta": recipe("atwu").options["beta"].search}
    assert METHODS["gt_satga"].search == {"beta": Range(0.1, 10.0)}
    assert {name: row.first_trial for name, row in METHODS.items() if row.first_trial} == {
        "grad_diff": {"forget_weight": 0.5, "retain_weight": 1.0},
        "dpo": {"beta": 0.4},
        "npo": {"forget_weight": 1.0, "retain_weight": 1.0, "beta": 0.1},
        "simnpo": {"forget_weight": 0.125, "beta": 3.5, "delta": 0.0},
        "jensun": {"forget_weight": 0.5, "retain_weight": 0.5},
        "wga": {"beta": 1.0},
        "satimp": {"forget_weight": 1.0, "retain_weight": 0.1, "beta1": 5.0, "beta2": 1.0},
        "undial": {"forget_weight": 1.0, "retain_weight": 1.0, "beta": 10.0},
        "fundial": {"forget_weight": 1.0, "retain_weight": 1.0, "beta": 10.0},
        "atwu": {"forget_weight": 5.0, "retain_weight": 0.5, "beta": 5.0},
    }


@pytest.mark.parametrize(("low", "high", "log"), [(2.0, 1.0, False), (0.0, 1.0, True), (float("nan"), 1.0, True)])
def test_invalid_range_is_rejected(low, high, log):
    with pytest.raises(ValueError, match=r"low.*high"):
        Range(low, high, log=log)


def test_methods_and_presets_load_without_torch():
    code = "from atwu.methods.presets import presets; import atwu.methods.recipe, sys; presets('tofu-1b'); "
    code += "print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
