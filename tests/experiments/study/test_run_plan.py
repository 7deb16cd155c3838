"""Executing a plan with stand-ins for unlearning and evaluation: state after a failure, and which runs count as equal."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys

import pytest
from rich.console import Console

from atwu._manifest import damage, write_manifest
from atwu.benchmarks.sources import load_benchmark, load_rows
from atwu.cli.study import print_plan
from atwu.data.row_parsing import write_rows
from atwu.errors import BudgetReachedError
from atwu.evaluation.result import EvalResult
from atwu.experiments import experiment_run as module
from atwu.experiments import study_models as targets
from atwu.experiments.benchmark_settings import find_setting, setting_from
from atwu.experiments.executors import InProcessExecutor
from atwu.experiments.experiment_run import RunContext
from atwu.experiments.run_study import FAILED_NAME, PlanExecution
from atwu.experiments.study_file import read_study
from atwu.experiments.study_models import Models, model_identity
from atwu.experiments.study_plan import plan


@pytest.fixture(scope="module")
def benchmark():
    return load_benchmark("people:tiny")


@pytest.fixture
def models(benchmark):
    return Models(benchmark, target="some/model", retain_only=None)


class Pretend:
    """Count runs and evaluations; an evaluation raises the error that is set."""

    def __init__(self) -> None:
        self.unlearned: list[str] = []
        self.measured: list[str] = []
        self.removed: dict[str, str] = {}
        self.started: dict[str, str] = {}
        self.error: Exception | None = None

    def unlearn(self, source, config, *, forget, output, **kwargs):
        self.unlearned.append(output.name)
        self.started[output.name] = source.model
        self.removed[config.method] = forget
        output.mkdir(parents=True, exist_ok=True)
        (output / "run.json").write_text("{}")
        (output / "model.safetensors").write_bytes(b"weights")
        write_manifest(output)

    def measure(self, setup, model, name):
        self.measured.append(name)
        if self.error is not None and name not in ("original", "retain-only"):
            raise self.error
        return EvalResult(name, "0" * 32, {"forget": {}}, {}, {}, {}, {}, cost={})


@pytest.fixture
def work(monkeypatch):
    done = Pretend()
    monkeypatch.setattr(module, "run_unlearn", done.unlearn)
    monkeypatch.setattr(module, "evaluate_run", done.measure)
    return done


def planned(tmp_path, methods, setting="people-tiny", more="", **given):
    """The plan of a study with one seed."""
    path = tmp_path / "mine.yaml"
    path.write_text(f"methods: [{methods}]\nseeds: 1\n{more}")
    setting = find_setting(setting) if isinstance(setting, str) else setting
    return plan(read_study(path), setting, tmp_path / "out", **given)


def again(tmp_path, models, methods="wga, npo", more="", setting="people-tiny", overwrite=False):
    plan = planned(tmp_path, methods, setting, more=more)
    work = PlanExecution(plan, RunContext(models, plan.setting, plan.metrics), device="cpu", overwrite=overwrite)
    work.prepare(plan.runs)
    with InProcessExecutor() as executor:
        work.work(plan.runs, executor)
    return work


def test_a_trained_run_is_evaluated_again_without_training(tmp_path, models, work):
    work.error = OSError("disk full")
    found = again(tmp_path, models)
    failure = json.loads((tmp_path / "out" / "runs" / "wga-s1" / FAILED_NAME).read_text())
    assert failure == {"error": "OSError: disk full"}
    assert work.unlearned == ["wga-s1", "npo-s1"]
    work.error = None
    found = again(tmp_path, models)
    assert work.unlearned == ["wga-s1", "npo-s1"]
    assert all(run.finished for run in found.plan.runs)
    assert not (tmp_path / "out" / "runs" / "wga-s1" / FAILED_NAME).exists()


@pytest.mark.parametrize("step", ["drop_weights", "write_manifest"])
def test_a_run_killed_after_its_result_is_cleaned_up_by_the_next_command(step, tmp_path, models, work, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(module, step, lambda folder: sys.exit(137))
        with pytest.raises(SystemExit):
            again(tmp_path, models)
    folder = tmp_path / "out" / "runs" / "wga-s1"
    assert (folder / "eval.json").is_file()
    again(tmp_path, models)
    assert work.measured == ["original", "wga-s1", "npo-s1"]
    assert {path.name for path in folder.iterdir()} == {"eval.json", "manifest.json", "run.json", "timing.json"}
    assert damage(folder) is None


def test_no_run_starts_after_the_judge_budget_is_spent(tmp_path, models, work):
    work.error = BudgetReachedError(limit=1, unjudged=3)
    again(tmp_path, models)
    assert work.unlearned == ["wga-s1"]


def test_a_run_is_repeated_once_the_run_of_its_scorer_succeeds(tmp_path, models, work):
    lines = "{label: after, method: atwu, scorer_from: atwu}, atwu"
    work.error = ValueError("no such layer")
    again(tmp_path, models, lines)
    failure = json.loads((tmp_path / "out" / "runs" / "after-s1" / FAILED_NAME).read_text())
    assert re.search("atwu-s1.*scorer", failure["error"])
    work.error = None
    found = again(tmp_path, models, lines)
    assert [run.finished for run in found.plan.runs] == [True] * 2


def test_damaged_files_are_named_and_repeated_with_overwrite(tmp_path, models, work):
    done = again(tmp_path, models)
    wga, npo = done.plan.runs
    (wga.folder / "eval.json").write_text("{}")
    with pytest.raises(ValueError, match=r"wga-s1 is damaged \(eval.json has other contents.*--overwrite"):
        again(tmp_path, models)
    (tmp_path / "out" / "jobs" / "runs-npo-s1.json").write_text("{")
    assert not done.settled(npo)
    again(tmp_path, models, overwrite=True)
    assert work.unlearned == ["wga-s1", "npo-s1"] * 2
    assert [damage(run.folder) for run in done.plan.runs] == [None, None]


def test_a_plan_counts_finished_runs(tmp_path, models, work):
    setting = dataclasses.replace(find_setting("people-tiny"), target="some/model")
    models = dataclasses.replace(models, retain_only=setting.retain_only)

    def printed():
        console = Console(width=200, file=io.StringIO())
        print_plan(console, planned(tmp_path, "wga, npo", setting), 1)
        return console.file.getvalue()

    assert "2 of 2 runs to do" in printed()
    again(tmp_path, models, "wga, npo", setting=setting)
    assert "0 of 2 runs to do" in printed()


def test_a_model_folder_is_identified_by_its_contents(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"same")
    assert model_identity(str(tmp_path / "a")) == model_identity(str(tmp_path / "b"))
    (tmp_path / "b" / "model.safetensors").write_bytes(b"other")
    assert model_identity(str(tmp_path / "a")) != model_identity(str(tmp_path / "b"))
    assert model_identity("owner/name") == "owner/name"


@pytest.fixture
def taught(tmp_path, monkeypatch):
    """Folder -> source of the models that would be trained, in a temporary cache; none is trained."""
    trained = {}

    def run_finetune(model, config, *, data, output, **kwargs):
        trained[output] = data
        output.mkdir(parents=True)
        (output / "run.json").write_text("{}")
        write_manifest(output)

    monkeypatch.setattr(targets, "run_finetune", run_finetune)
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path))
    return trained


def test_each_model_is_trained_once_and_only_if_needed(taught):
    setting = find_setting("people-tiny")
    alone = targets.prepare_models(setting, with_retain_only=False, say=str)
    assert alone.retain_only is None
    assert [path.name for path in taught] == ["target"]
    for each in (setting, dataclasses.replace(setting, name="mine")):
        assert targets.prepare_models(each, say=str).target == alone.target
    assert [path.name for path in taught] == ["target", "retain_only"]


def test_custom_rows_train_the_target_and_only_retain_rows_the_retain_only_model(tmp_path, taught):
    forget, retain = "people:tiny:forget", str(tmp_path / "retain.jsonl")
    write_rows(retain, load_rows("people:tiny:retain").rows)
    setting = setting_from({"like": "people-tiny", "benchmark": {"forget": forget, "retain": retain}})
    targets.prepare_models(setting, say=str)
    assert {path.name: source for path, source in taught.items()} == {
        "target": f"{forget} + {retain}",
        "retain_only": retain,
    }


def test_unsupported_metrics_are_dropped_from_a_setting_and_rejected_in_a_study(tmp_path, benchmark):
    bare = dataclasses.replace(benchmark, holdout=())
    found = planned(tmp_path, "wga", "people-small").possible_with(bare)
    assert "membership" in find_setting("people-small").metrics
    assert "membership" not in found.metrics
    assert len(found.left_out) == 1
    assert re.search("holdout", found.left_out["the group membership"])
    with pytest.raises(ValueError, match="holdout"):
        planned(tmp_path, "wga", "people-small", more="metrics: [membership]").possible_with(bare)


def test_a_list_of_words_replaces_labels(tmp_path, benchmark):
    bare = tmp_path / "rows.jsonl"
    bare.write_text("".join(json.dumps({"question": r.question, "answer": r.answer}) + "\n" for r in benchmark.forget))
    words = tmp_path / "words.txt"
    words.write_text("Orla\n")
    rows = dataclasses.replace(benchmark, forget_source=str(bare))
    every = planned(tmp_path, f"gt_ga, {{label: mine, method: gt_ga, forget_words: {words}}}")
    found, asked = every.possible_with(rows), dataclasses.replace(every, asked=("mine",))
    assert {run.label for run in found.runs} == {"mine"}
    assert len(found.left_out) == 1
    assert re.search("forget_spans.*forget_words", found.left_out["gt_ga"])
    assert not asked.possible_with(rows).left_out  # nobody asked for it


def test_a_variant_may_start_from_the_retain_only_model(tmp_path, models, work, benchmark):
    both = dataclasses.replace(models, retain_only="some/other")
    done = again(tmp_path, both, "atwu, {label: clean, method: atwu, start: retain-only}")
    assert work.started == {"atwu-s1": "some/model", "clean-s1": "some/other"}
    first, second = (done.jobs[run.name] for run in done.plan.runs)
    assert (first["inputs"]["start"], second["inputs"]["start"]) == (None, "retain-only")
    lacking = dataclasses.replace(find_setting("people-tiny"), train_retain_only=False)
    found = plan(done.plan.study, lacking, tmp_path).possible_with(benchmark)
    assert [run.label for run in found.runs] == ["atwu"]
    assert len(found.left_out) == 1
    assert re.search("retain-only.*people-tiny", found.left_out["clean"])


def test_preference_methods_use_the_paired_rows_as_forget_set(tmp_path, models, work):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"question": "Who?", "answer": "Orla.", "alternate": "Tavi."}))
    paired = dataclasses.replace(models, benchmark=dataclasses.replace(models.benchmark, paired_source=str(pairs)))
    done = again(tmp_path, paired, "wga, dpo, atwu_dpo")
    own = models.benchmark.forget_source
    assert work.removed == {"wga": own, "dpo": str(pairs), "atwu_dpo": str(pairs)}
    jobs = [done.jobs[run.name]["rows"]["forget"] for run in done.plan.runs]
    assert jobs[0] != jobs[1] == jobs[2]


def test_preference_methods_without_alternate_answers_are_left_out(tmp_path, benchmark):
    rows = dataclasses.replace(benchmark, paired_source=str(tmp_path / "pairs.jsonl"))
    found = planned(tmp_path, "dpo, wga").possible_with(rows)
    assert [run.label for run in found.runs] == ["wga"]
    assert str(tmp_path / "pairs.jsonl") in found.left_out["dpo"]


def test_a_replaced_component_drops_the_hyperparameters_of_the_old_one(tmp_path):
    wga, plain = planned(tmp_path, "wga, {label: plain, method: wga, weighting: uniform}", "people-small").runs
    assert "beta" in wga.options
    assert "beta" not in plain.options
    assert plain.options["learning_rate"] == wga.options["learning_rate"]
    assert re.search("replaced$", plain.budget)
    plain.config(find_setting("people-small"))


def test_a_searched_value_overrides_the_setting(tmp_path):
    (tmp_path / "atwu.yaml").write_text("method: atwu\nlearning_rate: 1e-5\nscorer_learning_rate: 0.3\n")
    setting = find_setting("rwku-phi3")
    (run,) = planned(tmp_path, "atwu", setting, presets=tmp_path).runs
    assert setting.training["scorer_learning_rate"] == 0.02
    assert run.config(setting).component_options["scorer_learning_rate"] == 0.3
