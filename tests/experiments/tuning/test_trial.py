"""A trial: what is measured, what is kept, and which runs are given up."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace

import pytest

from atwu.errors import NonFiniteLossError
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.experiments.study.scales import find_scale
from atwu.experiments.tuning import trial
from atwu.experiments.tuning.search import Outcome, PrunedError, Search
from atwu.experiments.tuning.trial import RunTrial, StopDestroyed

SEARCH = Search("grad_diff", find_scale("people-tiny"), trials=2).decided()
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
    """Stands in for unlearning and measuring; counts both."""
    seen = SimpleNamespace(unlearned=[], measured=[], value=0.5, error=None)

    def unlearn(models, config, output, *, watch):
        seen.unlearned.append(config)
        if seen.error is not None:
            output.with_name("run.incomplete").mkdir()
            raise seen.error
        output.mkdir(exist_ok=True)
        (output / "model.safetensors").write_bytes(b"weights")
        (output / "run.json").write_text("{}")

    def measure(models, scale, folder, *, metrics, name, original=None):
        seen.measured.append(tuple(metrics))
        return result(seen.value)

    monkeypatch.setattr(trial, "unlearn", unlearn)
    monkeypatch.setattr(trial, "measure", measure)
    return seen


def test_trial_measures_what_the_objective_needs_and_keeps_no_weights(tmp_path, runs):
    run = RunTrial(SEARCH, None, tmp_path, {"seed": 0})
    assert run(3, POINT) == Outcome(0.5, 0.25, 0.75)
    assert runs.measured == [("memorization",)]
    config = runs.unlearned[0]
    assert (config.method, config.learning_rate, config.num_train_epochs) == (
        "grad_diff",
        1e-3,
        SEARCH.scale.training["num_train_epochs"],
    )
    assert sorted(path.name for path in (tmp_path / "003").iterdir()) == ["eval.json", "run", "trial.json"]
    assert [path.name for path in (tmp_path / "003" / "run").iterdir()] == ["run.json"]


def test_trial_that_was_measured_already_is_not_run_again_unless_it_is_another(tmp_path, runs):
    RunTrial(SEARCH, None, tmp_path, {"seed": 0})(0, POINT)
    assert RunTrial(SEARCH, None, tmp_path, {"seed": 0})(0, POINT).value == 0.5
    assert len(runs.unlearned) == 1
    runs.value = 0.75
    assert RunTrial(SEARCH, None, tmp_path, {"seed": 1})(0, POINT).value == 0.75
    assert RunTrial(SEARCH, None, tmp_path, {"seed": 1})(0, POINT | {"forget_weight": 2.0}).value == 0.75
    assert len(runs.unlearned) == 3
    (tmp_path / "001").mkdir()
    (tmp_path / "001" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not a trial of atwu"):
        RunTrial(SEARCH, None, tmp_path, {"seed": 1})(1, POINT)


def test_broken_runs_are_pruned_and_impossible_settings_are_errors(tmp_path, runs):
    run = RunTrial(SEARCH, None, tmp_path, {})
    runs.error = NonFiniteLossError("loss is not finite at step 3 (rows [1]); no checkpoint was written yet. Lower it.")
    with pytest.raises(PrunedError, match=r"^loss is not finite at step 3 \(rows \[1\]\)$"):
        run(0, POINT)
    assert not (tmp_path / "000" / "run.incomplete").exists()
    runs.error = ValueError("no such layer")
    with pytest.raises(
        ValueError, match=r"trial 1 of people-tiny/grad_diff cannot run \(learning_rate 0.001, .*no such layer"
    ):
        run(1, POINT)
    runs.error, runs.value = None, None
    with pytest.raises(PrunedError, match="ES_delta could not be measured"):
        run(2, POINT)


def test_run_is_stopped_when_the_last_retain_losses_are_worse_than_guessing():
    callback, state = StopDestroyed(100), SimpleNamespace(global_step=9)
    bound = math.log(100)
    for loss in (bound + 3, *[bound - 1] * 4, *[bound] * 3, bound + 0.5):
        callback.on_log(None, state, None, logs={"retain_loss": loss})
        callback.on_log(None, state, None, logs={"train_runtime": 1.0})
    with pytest.raises(PrunedError, match=r"retain loss 6.7 at step 9, worse than guessing among 100 tokens"):
        callback.on_log(None, state, None, logs={"retain_loss": bound + 10})


def test_only_retain_losses_in_nats_are_compared_with_guessing():
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=100)))
    watched = {
        name: len(trial._stop_if_destroyed(SimpleNamespace(recipe=SimpleNamespace(retain_loss=name), model=model)))
        for name in ("nll", "kl", "js", "activation", "none")
    }
    assert watched == {"nll": 1, "kl": 1, "js": 0, "activation": 0, "none": 0}


def test_search_that_cannot_be_measured_is_refused_before_it_begins(tmp_path):
    models = SimpleNamespace(benchmark=SimpleNamespace(probes=None))
    search = dataclasses.replace(SEARCH, objective="N_delta")
    with pytest.raises(ValueError, match="N_delta is measured on RWKU's probes; scale people-tiny has none"):
        RunTrial(search, models, tmp_path, {}).prepare()
    with pytest.raises(ValueError, match="rho is a share of tokens"):
        RunTrial(dataclasses.replace(SEARCH, options={"rho": 3.0}), models, tmp_path, {}).prepare()


def test_evaluation_is_kept_as_it_was(tmp_path, runs):
    RunTrial(SEARCH, None, tmp_path, {})(0, POINT)
    kept = json.loads((tmp_path / "000" / "eval.json").read_text())
    assert kept["overall"]["ES_delta"]["value"] == 0.5
