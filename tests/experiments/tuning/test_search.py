"""What identifies a search, its options and first points, and the second stage."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from atwu.benchmarks.base import Benchmark, Probes, RwkuProbe
from atwu.benchmarks.load_benchmark import load_benchmark
from atwu.data.schema import Example
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.study_models import Models
from atwu.experiments.tuning.search import FinishedTrial, Search, SearchResult
from atwu.experiments.tuning.trial import search_definition
from atwu.experiments.tuning.tune_methods import second_stage
from atwu.methods.component import Range
from atwu.training.checkpoints import key_differences
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
        ({"seed": 7}, "seed"),
        ({"objective": "UQ"}, "objective"),
        ({"options": {"rho": 0.3}}, "options.rho"),
        ({"space": {**search_for().space, "beta": Range(1.0, 9.0, log=False)}}, "space.beta"),
        ({"setting": dataclasses.replace(SETTING, training={"num_train_epochs": 2})}, "setting.training"),
        ({"trials": 20}, "its settings"),
    ],
)
def test_what_determines_points_and_values_defines_a_search(change, differs):
    one, other = search_for(), dataclasses.replace(search_for(), **change).decided()
    assert key_differences(search_definition(one, MODELS), search_definition(other, MODELS)) == differs


def test_another_search_of_the_same_name_is_rejected(tmp_path):
    search, what = search_for(trials=1), search_definition(search_for(), MODELS)
    run(search, tmp_path, what=what)
    other = what | {"versions": what["versions"] | {"torch": "1.0"}}
    with pytest.raises(ValueError, match=r"'people-tiny/atwu'.* versions\.torch\."):
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
    probes = Probes("rwku", (RwkuProbe("fb", "Orla", "Orla lives in _.", "Kelbury"),))
    benchmark = Benchmark(
        *("own", str(tmp_path / "forget.jsonl"), str(tmp_path / "retain.jsonl"), None, None),
        *(rows("In Kelbury."), rows("In Kelbury."), rows("In Kelbury.")),
        probes=probes,
    )
    return Models(benchmark, str(tmp_path / "model"), None)


def changed_source(models: Models, tmp_path: Path) -> Models:
    with (tmp_path / "forget.jsonl").open("a") as file:
        file.write('\n{"question": "Who keeps bees?", "answer": "Orla Quist."}')
    return models


def changed_pool(models: Models, tmp_path: Path) -> Models:
    return dataclasses.replace(models, benchmark=dataclasses.replace(models.benchmark, pool=rows("In Dunmere.")))


def changed_probes(models: Models, tmp_path: Path) -> Models:
    probes = dataclasses.replace(models.benchmark.probes, probes=())
    return dataclasses.replace(models, benchmark=dataclasses.replace(models.benchmark, probes=probes))


def changed_model(models: Models, tmp_path: Path) -> Models:
    (tmp_path / "model" / "run.json").write_text('{"result_fingerprint": "second"}')
    return models


def other_retain_only(models: Models, tmp_path: Path) -> Models:
    return dataclasses.replace(models, retain_only="another")


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (changed_source, "rows.forget"),
        (changed_pool, "rows.measured"),
        (changed_probes, "rows.probes"),
        (changed_model, "model"),
        (other_retain_only, "its settings"),
    ],
)
def test_training_rows_evaluation_rows_and_original_model_identify_a_search(models, tmp_path, change, differs):
    before = search_definition(search_for(), models)
    after = search_definition(search_for(), change(models, tmp_path))
    assert key_differences(before, after) == differs


def test_a_setting_may_define_the_first_learning_rates():
    rates = {"first_rates": (2e-4, 1e-3)}
    setting = dataclasses.replace(SETTING, **rates)
    alone = search_for("grad_diff", setting=setting, options={"forget_weight": 1.0, "retain_weight": 1.0})
    assert [dict(point) for point in alone.first or ()] == [{"learning_rate": 2e-4}, {"learning_rate": 1e-3}]
    both = search_for(setting=setting)
    assert [point["learning_rate"] for point in both.first or ()] == [2e-4, 2e-4, 1e-3, 1e-3]
    assert [point["forget_weight"] for point in both.first or ()] == [5.0, 3.0, 5.0, 3.0]


def test_options_that_were_given_are_not_searched():
    search = search_for(options={"beta": 3.0, "retain_loss": "none"})
    assert search.space is not None
    assert search.space.keys() == {"learning_rate", "forget_weight", "scorer_learning_rate"}
    assert [dict(point) for point in search.first or ()] == [
        {"learning_rate": SETTING.learning_rate, "forget_weight": 5.0, "scorer_learning_rate": 0.05},
        {"learning_rate": SETTING.learning_rate, "forget_weight": 3.0, "scorer_learning_rate": 0.05},
    ]
    with pytest.raises(ValueError, match="grad_ascent"):
        search_for("grad_ascent", options={"learning_rate": 1e-5, "forget_weight": 1.0})
    with pytest.raises(ValueError, match=r"'ES_deta'.*'ES_delta'"):
        search_for(objective="ES_deta")
    with pytest.raises(ValueError, match=r"\b1 trial"):
        search_for(trials=0)


def found(search: Search) -> SearchResult:
    """A search whose second trial is the best."""
    decided = search.decided()
    point = {name: where.clip(2e-3) for name, where in (decided.space or {}).items()}
    return SearchResult(decided, (FinishedTrial(0, point, 0.1, 1.0), FinishedTrial(1, point, 0.9, 1.0)))


def test_second_stage_searches_the_learning_rate_around_the_first_and_fixes_the_rest():
    first = found(Search("atwu", SETTING, {"rho": 0.3}, trials=7, seed=4))
    assert first.search.space is not None
    assert first.search.space.keys() == {
        *("learning_rate", "forget_weight", "retain_weight", "beta", "scorer_learning_rate")
    }
    second = second_stage(first, find_setting("people-small"), trials=3).decided()
    assert (second.setting, second.trials, second.seed) == (find_setting("people-small"), 3, 4)
    assert second.label.startswith("people-tiny/atwu/to-people-small-")
    assert second.space == {"learning_rate": Range(2e-3 / 5, 2e-3 * 5)}
    assert list(second.first or ()) == [{"learning_rate": 2e-3}]
    assert dict(second.options) == {
        "rho": 0.3,
        "forget_weight": 0.1,
        "retain_weight": 0.1,
        "beta": 1.0,
        "scorer_learning_rate": 0.01,
    }


def test_layers_stay_whole_numbers():
    search = Search("rmu", SETTING).decided(2)
    assert search.space is not None
    best = {name: where.clip(1.0) for name, where in search.space.items()}
    second = second_stage(SearchResult(search, (FinishedTrial(0, best, 1.0, 1.0),)), find_setting("people-small"))
    assert isinstance(second.options["layer"], int)


def test_a_transfer_needs_a_searched_learning_rate():
    fixed = search_for("grad_diff", options={"learning_rate": 1e-3})
    with pytest.raises(ValueError, match="learning rate"):
        second_stage(SearchResult(fixed, (FinishedTrial(0, {"forget_weight": 1.0}, 0.5, 1.0),)), SETTING)
