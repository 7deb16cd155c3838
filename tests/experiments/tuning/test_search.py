"""Space and first points of a method, what identifies a search, its options, and the second stage."""

from __future__ import annotations

import dataclasses
import json

import pytest

from atwu._cache import key_differences
from atwu.benchmarks.base import Benchmark, Probe, Probes
from atwu.benchmarks.sources import load_benchmark
from atwu.data.schema import Example
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.search import FinishedTrial, Search, SearchResult, first_points, search_definition, search_space
from atwu.experiments.study_models import Models
from atwu.experiments.tune_methods import second_stage
from atwu.methods.component import Range
from atwu.methods.method_table import METHODS
from atwu.training.config import UnlearnConfig
from tests.experiments.tuning.searching import SETTING, run, search_for

MODELS = Models(load_benchmark("people:tiny"), "model", None)


def test_the_best_trial_is_the_earliest_of_equal_ones_or_none_if_all_were_pruned():
    trials = [FinishedTrial(number, {}, value, 1.0) for number, value in enumerate([None, 0.5, 0.8, 0.8])]
    best = SearchResult(search_for(), tuple(trials)).best
    assert best is not None
    assert best.number == 2
    assert SearchResult(search_for(), tuple(trials[:1])).best is None


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"seed": 7}, ["options.seed"]),
        ({"objective": "UQ"}, ["options.objective"]),
        ({"options": {"rho": 0.3}}, ["options.options.rho"]),
        ({"space": {**search_for().space, "beta": Range(1.0, 9.0, log=False)}}, ["options.space.beta.high"]),
        (
            {"setting": dataclasses.replace(SETTING, training={**SETTING.training, "num_train_epochs": 99})},
            ["options.setting.training.num_train_epochs"],
        ),
        ({"trials": 20}, []),
    ],
)
def test_what_determines_points_and_values_defines_a_search(change, differs):
    one, other = search_for(), dataclasses.replace(search_for(), **change)
    assert key_differences(search_definition(one, MODELS), search_definition(other, MODELS)) == differs


def test_another_search_of_the_same_name_is_rejected(tmp_path):
    search, what = search_for(trials=1), search_definition(search_for(), MODELS)
    run(search, tmp_path, what=what)
    other = what | {"inputs": {"versions": what["inputs"]["versions"] | {"torch": "1.0"}}}
    with pytest.raises(ValueError, match=r"'people-tiny/atwu'.* inputs\.versions\.torch\."):
        run(search, tmp_path, what=other)


def rows(*answers: str) -> tuple[Example, ...]:
    return tuple(Example.from_qa("Where does Orla Quist live?", answer) for answer in answers)


@pytest.fixture
def models(tmp_path) -> Models:
    """Rows and an original model; sources and model are files that a test may change."""
    for name in ("forget", "retain"):
        line = {"question": "Where does Orla Quist live?", "answer": "In Kelbury."}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(line))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "run.json").write_text('{"result_fingerprint": "first"}')
    probes = Probes("rwku", (Probe("fb", Example.from_qa("Orla lives in _.", "Kelbury", subject="Orla")),))
    benchmark = Benchmark(
        *("own", str(tmp_path / "forget.jsonl"), str(tmp_path / "retain.jsonl"), None, None),
        *(rows("In Kelbury."), rows("In Kelbury."), rows("In Kelbury.")),
        probes=probes,
    )
    return Models(benchmark, str(tmp_path / "model"), None)


def test_training_rows_evaluation_rows_and_original_model_identify_a_search(models, tmp_path):
    before = search_definition(search_for(), models)

    def differs(**changes: object) -> list[str]:
        changed = dataclasses.replace(models, benchmark=dataclasses.replace(models.benchmark, **changes))
        return key_differences(before, search_definition(search_for(), changed))

    assert differs(pool=rows("In Dunmere.")) == ["rows.measured"]
    assert differs(probes=dataclasses.replace(models.benchmark.probes, probes=())) == ["rows.probes"]
    other = search_definition(search_for(), dataclasses.replace(models, retain_only="another"))
    assert key_differences(before, other) == []
    record = tmp_path / "model" / "run.json"
    record.write_text('{"result_fingerprint": "second"}')
    assert differs() == ["model"]
    record.write_text('{"result_fingerprint": "first"}')
    with (tmp_path / "forget.jsonl").open("a") as file:
        file.write('\n{"question": "Who keeps bees?", "answer": "Orla Quist."}')
    assert differs() == ["rows.forget"]


def test_a_setting_may_define_the_first_learning_rates():
    rates = {"first_rates": (2e-4, 1e-3)}
    setting = dataclasses.replace(SETTING, **rates)
    alone = search_for("grad_diff", setting=setting, options={"forget_weight": 1.0, "retain_weight": 1.0})
    assert [dict(point) for point in alone.first] == [{"learning_rate": 2e-4}, {"learning_rate": 1e-3}]
    both = search_for(setting=setting)
    assert [point["learning_rate"] for point in both.first] == [2e-4, 2e-4, 1e-3, 1e-3]
    assert [point["forget_weight"] for point in both.first] == [5.0, 3.0, 5.0, 3.0]


def test_options_that_were_given_are_not_searched():
    search = search_for(options={"beta": 3.0, "retain_loss": "none"})
    assert search.space.keys() == {"learning_rate", "forget_weight", "scorer_learning_rate"}
    assert [dict(point) for point in search.first] == [
        {"learning_rate": SETTING.learning_rate, "forget_weight": 5.0, "scorer_learning_rate": 0.05},
        {"learning_rate": SETTING.learning_rate, "forget_weight": 3.0, "scorer_learning_rate": 0.05},
    ]
    with pytest.raises(ValueError, match="grad_ascent"):
        search_for("grad_ascent", options={"learning_rate": 1e-5, "forget_weight": 1.0})
    with pytest.raises(ValueError, match=r"'ES_deta'.*'ES_delta'"):
        search_for(objective="ES_deta")
    with pytest.raises(ValueError, match=r"\b1 trial"):
        search_for(trials=0)


def test_second_stage_searches_the_learning_rate_around_the_first_and_fixes_the_rest():
    search = Search.of("atwu", SETTING, {"rho": 0.3}, trials=7, seed=4)
    point = {name: where.clip(2e-3) for name, where in search.space.items()}
    first = SearchResult(search, (FinishedTrial(0, point, 0.1, 1.0), FinishedTrial(1, point, 0.9, 1.0)))
    assert first.search.space.keys() == {
        *("learning_rate", "forget_weight", "retain_weight", "beta", "scorer_learning_rate")
    }
    second = second_stage(first, find_setting("people-small"), trials=3)
    assert (second.setting, second.trials, second.seed) == (find_setting("people-small"), 3, 4)
    assert second.label.startswith("people-tiny/atwu/to-people-small-")
    assert second.space == {"learning_rate": Range(2e-3 / 5, 2e-3 * 5)}
    assert list(second.first) == [{"learning_rate": 2e-3}]
    assert dict(second.options) == {
        "rho": 0.3,
        "forget_weight": 0.1,
        "retain_weight": 0.1,
        "beta": 1.0,
        "scorer_learning_rate": 0.01,
    }


def test_a_second_stage_keeps_layers_whole():
    search = Search.of("rmu", SETTING, layers=2)
    best = {name: where.clip(1.0) for name, where in search.space.items()}
    second = second_stage(SearchResult(search, (FinishedTrial(0, best, 1.0, 1.0),)), find_setting("people-small"))
    assert isinstance(second.options["layer"], int)


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
    assert Search.of("atwu", SETTING, {"forget_loss": "simnpo"}).first[0] == {
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
    (point,) = Search.of("rmu", SETTING, layers=layers).first
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
    found = Search.of(method, SETTING).first
    assert [tuple(point.values())[1:] for point in found] == points
    assert {point["learning_rate"] for point in found} == {SETTING.learning_rate}


@pytest.mark.parametrize("method", METHODS)
def test_every_point_is_in_the_space_and_gives_a_valid_run(method):
    search = Search.of(method, SETTING)
    space = search.space
    assert all(point.keys() == space.keys() for point in first_points(method, learning_rate=1e-5))
    for point in search.first:
        assert point.keys() == space.keys()
        assert all(where.low <= point[name] <= where.high for name, where in space.items())
        config = UnlearnConfig(method=method, **point, use_cpu=True)
        found = {"learning_rate": config.learning_rate, **config.component_options}
        assert found == point
