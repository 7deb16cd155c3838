"""A trial: measured metrics, kept files, and pruned runs."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from types import SimpleNamespace

import pytest

from atwu.benchmarks.base import Benchmark
from atwu.benchmarks.sources import load_benchmark
from atwu.errors import NonFiniteLossError
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.experiments import experiment_run as module
from atwu.experiments import tune_methods as tune
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.executors import InProcessExecutor
from atwu.experiments.experiment_run import RunContext
from atwu.experiments.search import (
    DestroyedModelError,
    FinishedTrial,
    Search,
    TrialFunction,
    check_search,
    compute_objective,
    stop_if_destroyed,
)
from atwu.experiments.study_models import Models
from atwu.experiments.tune_methods import plan_tuning, tune_methods
from atwu.modeling.scratch import ScratchShape, scratch_model
from tests.experiments.tuning.searching import run

SEARCH = Search.of("grad_diff", find_setting("people-tiny"), trials=2)
POINT = {"learning_rate": 1e-3, "forget_weight": 1.0, "retain_weight": 1.0}


def result(value: float | None) -> EvalResult:
    def line(number: float | None) -> MetricValue:
        return MetricValue(number, 4, "up")

    return EvalResult(
        model="trial",
        fingerprint="0" * 32,
        sets={"forget": {"extraction_strength": line(0.25)}, "retain": {"extraction_strength": line(0.75)}},
        overall={"ES_delta": line(value)},
        rows={},
        settings={},
        versions={},
    )


@pytest.fixture
def runs(monkeypatch):
    """Stand-in for unlearning and evaluation that counts both."""
    seen = SimpleNamespace(unlearned=[], measured=[], value=0.5, error=None)

    def unlearn(source, config, *, output, **options):
        seen.unlearned.append(config)
        if seen.error is not None:
            output.with_name(f"{output.name}.incomplete").mkdir(parents=True)
            (output.with_name(f"{output.name}.incomplete") / "log.jsonl").write_text("{}")
            raise seen.error
        output.mkdir(parents=True)
        (output / "model.safetensors").write_bytes(b"weights")
        (output / "run.json").write_text("{}")

    def measure(setup, model, name):
        seen.measured.append(setup.metrics)
        return result(seen.value)

    monkeypatch.setattr(module, "run_unlearn", unlearn)
    monkeypatch.setattr(module, "evaluate_run", measure)
    return seen


def trial() -> TrialFunction:
    models = SimpleNamespace(target="model", benchmark=Benchmark("own", "forget", "retain", None, None, (), (), ()))
    return functools.partial(compute_objective, SEARCH, RunContext(models, SEARCH.setting, ("memorization",)))


def search(folder, *, seed=0, **changes):
    changed = dataclasses.replace(SEARCH, **changes)
    return run(changed, folder, trial(), what={"seed": seed})


def test_a_trial_measures_the_metrics_of_the_objective_and_keeps_no_weights(tmp_path, runs):
    found = trial()(3, POINT, folder=tmp_path / "003")
    assert found.seconds > 0
    assert dataclasses.replace(found, seconds=0.0) == FinishedTrial(3, POINT, 0.5, forget=0.25, retain=0.75)
    assert runs.measured == [("memorization",)]
    config = runs.unlearned[0]
    assert (config.method, config.learning_rate, config.num_train_epochs) == (
        "grad_diff",
        1e-3,
        SEARCH.setting.training["num_train_epochs"],
    )
    assert sorted(path.name for path in (tmp_path / "003").iterdir()) == [
        "eval.json",
        "manifest.json",
        "run.json",
        "timing.json",
    ]
    kept = json.loads((tmp_path / "003" / "eval.json").read_text())
    assert kept["overall"]["ES_delta"]["value"] == 0.5


@pytest.fixture
def models(tmp_path) -> Models:
    scratch_model(
        ScratchShape(vocab_size=300, hidden_size=16, layers=1, heads=1, intermediate_size=24)
    ).save_pretrained(tmp_path / "model")
    return Models(load_benchmark("people:tiny"), str(tmp_path / "model"), retain_only=None)


def test_the_original_model_is_evaluated_once_per_setting_for_all_methods(tmp_path, runs, models, monkeypatch):
    """Before the trials of both methods and stages; a later command reads the result."""
    settings = []

    def measure(setup, model, name):
        settings.append((setup.setting.name, name))
        assert ("original" in setup.references) == (name != "original")
        return dataclasses.replace(result(0.5), overall={"UQ": MetricValue(0.5, 4, "up")})

    monkeypatch.setattr(module, "evaluate_run", measure)
    monkeypatch.setattr(tune, "prepare_models", lambda setting, **options: models)
    options = {"setting": "people-tiny", "transfer_to": "people-small", "objective": "UQ", "output": tmp_path / "out"}
    for trials in (1, 2):
        tuning = plan_tuning(["grad_diff", "npo"], **options, trials=trials, transfer_trials=1)
        done = tune_methods(tuning, InProcessExecutor(), command="atwu tune")
        assert {name: [len(each.trials) for each in found] for name, found in done.searches.items()} == {
            "grad_diff": [trials, 1],
            "npo": [trials, 1],
        }
        assert [setting for setting, _ in settings].count("people-tiny") == 1 + 2 * trials
    assert settings[:2] == [("people-tiny", "original"), ("people-small", "original")]
    assert [name for _, name in settings].count("original") == 2


def test_a_finished_trial_is_not_repeated_unless_its_settings_changed(tmp_path, runs):
    search(tmp_path, trials=1)
    (tmp_path / "search.db").unlink()  # as if it had been killed just before it was written down
    assert search(tmp_path, trials=1).trials[0].value == 0.5
    assert len(runs.unlearned) == 1
    (tmp_path / "search.db").unlink()
    runs.value = 0.75
    assert search(tmp_path, trials=1, seed=1).trials[0].value == 0.75
    assert len(runs.unlearned) == 2
    mine = tmp_path / "trials" / "people-tiny_grad_diff" / "001"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="people-tiny_grad_diff/001"):
        search(tmp_path, seed=1)


def test_broken_runs_are_pruned_and_impossible_settings_are_errors(tmp_path, runs):
    run, folder = trial(), tmp_path / "000"
    runs.error = NonFiniteLossError("loss is not finite at step 3 (rows [1]); no checkpoint was written yet. Lower it.")
    for _ in range(2):  # the second time as after a kill
        found = run(0, POINT, folder=folder)
        assert found.value is None
        assert found.reason == "loss is not finite at step 3 (rows [1])"
        assert [path.name for path in tmp_path.rglob("*")] == ["000", "log.jsonl"]
    runs.error = ValueError("no such layer")
    with pytest.raises(ValueError, match=r"trial 1 of people-tiny/grad_diff.*learning_rate 0\.001, .*no such layer"):
        run(1, POINT, folder=tmp_path / "001")
    for place, unmeasured in ((2, None), (3, math.nan)):
        runs.error, runs.value = None, unmeasured
        found = run(place, POINT, folder=tmp_path / f"00{place}")
        assert (found.value, found.reason) == (None, "ES_delta is undefined for this trial")


def test_a_run_is_pruned_if_recent_retain_losses_are_worse_than_guessing():
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=100)))
    watched = {
        name: stop_if_destroyed(SimpleNamespace(recipe=SimpleNamespace(retain_loss=name), model=model))
        for name in ("nll", "kl", "js", "activation", "none")
    }
    assert [name for name, callbacks in watched.items() if callbacks] == ["nll", "kl"]  # those in nats
    (callback,), state = watched["nll"], SimpleNamespace(global_step=9)
    bound = math.log(100)
    for loss in (bound + 3, *[bound - 1] * 4, *[bound] * 3, bound + 0.5):
        callback.on_log(None, state, None, logs={"retain_loss": loss})
        callback.on_log(None, state, None, logs={"train_runtime": 1.0})
    with pytest.raises(DestroyedModelError, match=r"retain loss 6\.7 .*step 9.* 100 tokens"):
        callback.on_log(None, state, None, logs={"retain_loss": bound + 10})


def test_a_search_with_an_unavailable_objective_is_rejected_before_it_starts():
    models = SimpleNamespace(benchmark=SimpleNamespace(probes=None))
    with pytest.raises(ValueError, match=r"N_delta .*RWKU.*people-tiny"):
        check_search(dataclasses.replace(SEARCH, objective="N_delta"), models)
    atwu = Search.of("atwu", SEARCH.setting)
    with pytest.raises(ValueError, match="rho"):
        check_search(dataclasses.replace(atwu, options={"rho": 3.0}), models)
