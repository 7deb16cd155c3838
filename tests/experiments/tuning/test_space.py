"""Search space and first points of a method."""

from __future__ import annotations

import pytest

from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.tuning.search import Search, first_points, search_space
from atwu.methods.component import Range
from atwu.methods.method_table import METHODS
from atwu.training.config import UnlearnConfig

SETTING = find_setting("people-tiny")
RATES = (1e-6, 5e-5)
WEIGHTS = {"learning_rate": Range(1e-6, 5e-5), "forget_weight": Range(0.1, 5.0), "retain_weight": Range(0.1, 5.0)}
SCORER = {"scorer_learning_rate": Range(0.01, 0.5)}


def linear(low, high):
    return Range(low, high, log=False)


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("grad_diff", {}),
        ("dpo", {"beta": Range(0.2, 0.5)}),
        ("npo", {"beta": Range(0.05, 0.2)}),
        ("simnpo", {"beta": linear(2, 3), "delta": linear(0, 2)}),
        ("jensun", {}),
        ("rmu", {"steering_coeff": Range(0.5, 10), "layer": Range(4, 12, log=False, integer=True)}),
        ("undial", {"beta": Range(1, 30)}),
        ("etw", {"temperature": Range(0.1, 4)}),
        ("wga", {"beta": Range(0.1, 5)}),
        ("satimp", {"beta1": linear(1, 10), "beta2": Range(0.1, 5)}),
        ("su_llm", {}),
        ("gt_satga", {"beta": Range(0.1, 10)}),
        ("atwu", {"beta": linear(1, 10)} | SCORER),
        ("atwu_ga", SCORER),
        ("atwu_simnpo", {"beta": linear(2, 3), "delta": linear(0, 2)} | SCORER),
    ],
)
def test_spaces(method, more):
    space = search_space(method, learning_rate=RATES)
    assert space == WEIGHTS | more
    assert list(space) == list(WEIGHTS | more)


def test_a_replaced_component_has_its_own_search_range():
    assert list(search_space("grad_ascent", learning_rate=RATES)) == ["learning_rate", "forget_weight"]
    with pytest.raises(ValueError, match=r"'atvu'.*'atwu'"):
        search_space("atvu", learning_rate=RATES)
    assert search_space("npo", learning_rate=RATES, forget_loss="satga")["beta"] == Range(0.1, 5)
    assert search_space("atwu", learning_rate=RATES, forget_loss="npo") == WEIGHTS | {"beta": Range(0.05, 0.2)} | SCORER
    assert search_space("atwu", learning_rate=RATES, weighting="entropy") == WEIGHTS | {
        "temperature": Range(0.1, 4),
        "beta": linear(1, 10),
    }
    assert search_space("grad_diff", learning_rate=RATES, weighting="scorer*rarity") == WEIGHTS | SCORER
    assert first_points("npo", learning_rate=1e-5, forget_loss="satga")[-1]["beta"] == 2.14
    assert Search("atwu", SETTING, {"forget_loss": "simnpo"}).decided().first[0] == {
        "learning_rate": SETTING.learning_rate,
        "forget_weight": 5.0,
        "retain_weight": 0.5,
        "beta": 3.0,
        "delta": 0.0,
        "scorer_learning_rate": 0.05,
    }


@pytest.mark.parametrize(
    ("layers", "low", "high"), [(32, 4, 12), (13, 4, 12), (6, 4, 5), (5, 4, 4), (4, 0, 3), (1, 0, 0)]
)
def test_layers_are_those_of_the_model(layers, low, high):
    where = search_space("rmu", learning_rate=RATES, layers=layers)["layer"]
    assert where == Range(low, high, log=False, integer=True)
    (point,) = Search("rmu", SETTING).decided(layers).first
    assert point["layer"] == min(4, high)
    assert isinstance(point["layer"], int)


@pytest.mark.parametrize(
    ("method", "points"),
    [
        ("grad_ascent", [(1.0,)]),
        ("grad_diff", [(0.5, 1.0), (0.12, 0.8)]),
        ("dpo", [(1.0, 1.0, 0.4), (3.8, 0.15, 0.21)]),
        ("npo", [(1.0, 1.0, 0.1), (0.12, 4.1, 0.1)]),
        ("simnpo", [(0.125, 1.0, 3.0, 0.0), (1.49, 1.28, 2.82, 0.03)]),  # 3.5 is outside
        ("undial", [(1.0, 1.0, 10.0)]),  # both the same
        ("etw", [(0.1, 1.31, 0.16)]),  # 0.033 is outside
        ("satimp", [(1.0, 0.1, 5.0, 1.0), (0.87, 0.49, 1.43, 0.17)]),
        ("seul", [(0.12, 0.8)]),
        ("atwu", [(5.0, 0.5, 5.0, 0.05), (3.0, 0.5, 7.0, 0.05)]),
        ("atwu_npo", [(0.12, 4.1, 0.1, 0.05)]),
    ],
)
def test_first_points(method, points):
    found = Search(method, SETTING).decided().first
    assert [tuple(point.values())[1:] for point in found] == points
    assert {point["learning_rate"] for point in found} == {SETTING.learning_rate}


@pytest.mark.parametrize("method", METHODS)
def test_every_point_is_in_the_space_and_gives_a_valid_run(method):
    search = Search(method, SETTING).decided()
    space = search.space
    assert all(point.keys() == space.keys() for point in first_points(method, learning_rate=1e-5))
    for point in search.first:
        assert point.keys() == space.keys()
        assert all(where.low <= point[name] <= where.high for name, where in space.items())
        config = UnlearnConfig(method=method, **point, use_cpu=True)
        found = {"learning_rate": config.learning_rate, **config.component_options}
        assert found == point
