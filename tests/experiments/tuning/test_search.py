"""The budget is exact, and a stopped search resumes as if it had not been stopped."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import deque
from pathlib import Path

import pytest

from atwu.benchmarks.base import Benchmark
from atwu.benchmarks.load_benchmark import load_benchmark
from atwu.benchmarks.probes import RwkuProbe, RwkuProbes
from atwu.data.schema import Example
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.queue import InProcessExecutor
from atwu.experiments.study_models import Models
from atwu.experiments.tuning.sampler import FinishedTrial, SearchPoint
from atwu.experiments.tuning.search import PrunedError, Search, SearchResult
from atwu.experiments.tuning.search_definition import search_definition
from atwu.experiments.tuning.trials import definition_differences
from atwu.methods.component import Range
from tests.experiments.tuning.searching import run_trials, value

SETTING = find_setting("people-tiny")
MODELS = Models(load_benchmark("people:tiny"), "model", None)


class Objective:
    """Maximal where all numbers are 0.7; fails at some trials the first time."""

    def __init__(self, *, fail_at: dict[int, BaseException] | None = None) -> None:
        self.fail_at = dict(fail_at or {})
        self.asked: list[int] = []

    def __call__(self, slot: int, point: SearchPoint, folder: Path) -> FinishedTrial:
        self.asked.append(slot)
        if slot in self.fail_at:
            raise self.fail_at.pop(slot)
        if point.get("beta", 0) > 8:
            raise PrunedError("beta is too large")
        return FinishedTrial(slot, point, value(point), forget=0.1, retain=0.2)


def search_for(method: str = "atwu", **changes: object) -> Search:
    return Search(method, **{"setting": SETTING, "trials": 13, **changes}).decided()


def run(search: Search, objective: object, folder: Path) -> SearchResult:
    return run_trials(search, objective, InProcessExecutor(), folder=folder, what=search_definition(search, MODELS))


def points(found: SearchResult) -> list[tuple[int, SearchPoint, float | None]]:
    return [(trial.number, trial.point, trial.value) for trial in found.trials]


@pytest.mark.parametrize("storage", [None, "{}/one.journal"])
def test_a_stopped_search_resumes_to_the_same_points(tmp_path, storage):
    where = None if storage is None else storage.format(tmp_path)
    whole = run(search_for(), Objective(), tmp_path / "whole")
    objective = Objective(fail_at={4: KeyboardInterrupt(), 9: ValueError("broken"), 12: OSError("no space")})
    for stopped in (KeyboardInterrupt, ValueError, OSError):
        with pytest.raises(stopped):
            run(search_for(storage=where), objective, tmp_path / "stopped")
    found = run(search_for(storage=where), objective, tmp_path / "stopped")
    assert points(found) == points(whole)
    assert objective.asked == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 12]
    assert run(search_for(storage=where), Objective(), tmp_path / "stopped") == found


def test_budget_is_the_same_for_all_and_counts_pruned_trials(tmp_path):
    found = {name: run(search_for(name), Objective(), tmp_path) for name in ("atwu", "grad_diff", "npo")}
    assert {len(result.trials) for result in found.values()} == {13}
    assert found["atwu"].pruned == sum(trial.point["beta"] > 8 for trial in found["atwu"].trials) > 0
    assert all(trial.reason == "beta is too large" for trial in found["atwu"].trials if trial.value is None)
    assert found["atwu"].budget.startswith(f"13 trials, {found['atwu'].pruned} pruned, ")
    assert found["grad_diff"].trials[0].point.keys() == {"learning_rate", "forget_weight", "retain_weight"}


def test_larger_budget_continues_the_same_search(tmp_path):
    small = run(search_for(trials=3), Objective(), tmp_path / "grown")
    objective = Objective()
    grown = run(search_for(trials=13), objective, tmp_path / "grown")
    assert objective.asked == list(range(3, 13))
    assert points(grown) == points(run(search_for(), Objective(), tmp_path / "at-once"))
    assert points(run(search_for(trials=3), Objective(), tmp_path / "grown")) == points(small)


class ThreeIsLast(InProcessExecutor):
    """Four at once, of which the trial of place 3 takes longest."""

    slots = 4

    def result(self):
        self._waiting = deque(sorted(self._waiting, key=lambda waiting: waiting[0].endswith("trial 3")))
        return super().result()


def test_a_search_with_a_gap_continues_with_a_smaller_budget(tmp_path):
    objective = Objective(fail_at={3: OSError("killed")})
    given = {"folder": tmp_path, "what": {}}
    with pytest.raises(OSError, match="killed"):
        run_trials(search_for(), objective, ThreeIsLast(), **given)
    assert objective.asked == [0, 1, 2, 4, 5, 6, 3]
    found = run_trials(search_for(trials=4), objective, ThreeIsLast(), **given)
    assert [trial.number for trial in found.trials] == [0, 1, 2, 3]
    assert objective.asked == [0, 1, 2, 4, 5, 6, 3, 3]


def test_the_best_trial_is_the_earliest_of_equal_ones_or_none_if_all_were_pruned():
    trials = [FinishedTrial(number, {}, value, 1.0) for number, value in enumerate([None, 0.5, 0.8, 0.8])]
    best = SearchResult(search_for(), tuple(trials)).best
    assert best is not None
    assert best.number == 2
    assert SearchResult(search_for(), tuple(trials[:1])).best is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 7}, r"\bseed .*\b0 .*\b7\b"),
        ({"objective": "UQ"}, "objective .*'ES_delta' .*'UQ'"),
        ({"options": {"rho": 0.3}}, r"options\.rho .*None .*0\.3"),
        (
            {"space": {**search_for().space, "beta": Range(1.0, 9.0, log=False)}, "options": {"rho": 0.3}},
            r"space\.beta\.high .*10\.0 .*9\.0",
        ),
        (
            {"setting": dataclasses.replace(SETTING, training={"num_train_epochs": 2})},
            f"num_train_epochs .*{SETTING.training['num_train_epochs']} .*2",
        ),
    ],
)
def test_another_search_of_the_same_name_is_rejected_with_the_differences(tmp_path, change, said):
    run(search_for(trials=1), Objective(), tmp_path)
    with pytest.raises(ValueError, match="'people-tiny/atwu'") as refused:
        run(dataclasses.replace(search_for(trials=1), **change).decided(), Objective(), tmp_path)
    assert re.search(said, str(refused.value))


def test_other_versions_of_result_relevant_packages_are_rejected(tmp_path):
    search = search_for(trials=1)
    what = search_definition(search, MODELS)
    run_trials(search, Objective(), InProcessExecutor(), folder=tmp_path, what=what)
    before = {
        name: value for name, value in what.items() if name != "points"
    }  # started with another version of the sampler
    with pytest.raises(ValueError, match="points "):
        run_trials(search, Objective(), InProcessExecutor(), folder=tmp_path, what=before)
    other = what | {"versions": what["versions"] | {"torch": "1.0"}}
    with pytest.raises(ValueError, match=r"versions\.torch .*'1\.0'"):
        run_trials(search, Objective(), InProcessExecutor(), folder=tmp_path, what=other)


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
    probes = RwkuProbes((RwkuProbe("fb", "Orla", "Orla lives in _.", "Kelbury"),), ("Orla",), {}, {})
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
        (changed_source, ["rows.forget"]),
        (changed_pool, ["rows.measured"]),
        (changed_probes, ["rows.probes"]),
        (changed_model, ["model"]),
        (other_retain_only, []),
    ],
)
def test_training_rows_evaluation_rows_and_original_model_identify_a_search(models, tmp_path, change, differs):
    before = search_definition(search_for(), models)
    after = search_definition(search_for(), change(models, tmp_path))
    assert [text.partition(" ")[0] for text in definition_differences(before, after)] == differs


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
