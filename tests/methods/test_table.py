"""The table of methods: components and published hyperparameters."""

from __future__ import annotations

import subprocess
import sys

import pytest

from atwu.methods.component import Range, options_of_component
from atwu.methods.component_registry import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS, component_options
from atwu.methods.method_table import METHODS, citations
from atwu.methods.recipe import recipe, split_weighting


@pytest.mark.parametrize("name", sorted(METHODS))
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
    assert len(citations()[row.cite]) > 30
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
    assert set(citations()) == {row.cite for row in METHODS.values()}


@pytest.mark.parametrize(("low", "high", "log"), [(2.0, 1.0, False), (0.0, 1.0, True), (float("nan"), 1.0, True)])
def test_invalid_range_is_rejected(low, high, log):
    with pytest.raises(ValueError, match=r"low.*high"):
        Range(low, high, log=log)


def test_methods_and_presets_load_without_torch():
    code = "from atwu.methods.presets import shipped_presets; import atwu.methods.recipe, sys; shipped_presets('tofu-1b'); "
    code += "print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
