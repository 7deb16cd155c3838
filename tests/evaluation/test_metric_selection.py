"""Which metrics run, what they need, and which results may be compared."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from atwu.benchmarks.base import Probe, Probes
from atwu.data.schema import Example
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.registry import EvaluateConfig, all_metrics, check_inputs_used, check_installed, selected_metrics
from atwu.evaluation.result import read_result
from atwu.experiments import run_study as conduct
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.executors import InProcessExecutor
from atwu.experiments.study_file import read_study
from atwu.experiments.study_plan import plan
from atwu.judge.open_judge import JudgeOptions
from tests.evaluation.conftest import Dice, Speaker, invented_people

CONFIG = EvaluateConfig(paraphrases=1, icr_examples=1, samples=2)
BOTH = ("forget", "retain")


def test_metrics_and_settings_are_listed_without_torch():
    code = (
        "import sys; from atwu.cli.listings import list_metrics; from atwu.evaluation.registry import all_settings; "
        "list_metrics(as_json=False); all_settings(); print('imported:', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "scipy", "pydantic", "transformers"} & set(done.stdout.rpartition("imported:")[2].split())


def test_unknown_metrics_raise_errors_with_a_suggestion():
    with pytest.raises(ValueError, match=r"'membershp'.* memorization, .*'membership'"):
        selected_metrics(["membershp"], sets=BOTH, weights=True)
    with pytest.raises(ValueError, match=r"'xyzzy'.* memorization, [^?]*$"):
        selected_metrics("xyzzy", sets=BOTH, weights=True)


def test_errors_name_missing_sets_and_weights():
    with pytest.raises(ValueError, match=r"'membership'.*holdout"):
        selected_metrics(["membership"], sets=BOTH, weights=True)
    with pytest.raises(ValueError, match=r"'gradient_norm'.*forget.*holdout"):
        selected_metrics(["gradient_norm"], sets=["retain"], weights=True)
    with pytest.raises(ValueError, match=r"'memorization'.*weights"):
        selected_metrics(["memorization"], sets=BOTH, weights=False)
    with pytest.raises(ValueError, match="no metric is named; leave metrics out"):
        selected_metrics([], sets=BOTH, weights=True)
    with pytest.raises(ValueError, match=r"'quantization'.*weights"):
        selected_metrics(["quantization"], sets=BOTH, weights=True, plain=False)


@pytest.mark.parametrize("value", [None, 3, "mmlu"])
def test_a_setting_of_several_values_takes_a_list(value):
    with pytest.raises(ValueError, match=f"tasks.*list.*{value!r}"):
        EvaluateConfig(tasks=value)


def test_all_selects_every_metric_that_the_sets_support():
    every_set = ["forget", "retain", "holdout", "rwku", "lume", "muse", "tasks"]
    assert selected_metrics("all", sets=every_set, weights=True, reference_models=True) == list(all_metrics())
    kept = selected_metrics("all", sets=["retain"], weights=True)
    assert kept == [
        "memorization",
        "rouge",
        "key_tokens",
        "fluency",
        "judge",
        "truth_ratio",
        "open_ended",
        "general_text",
    ]
    rounded = selected_metrics("all", sets=every_set, weights=True, plain=False)
    assert set(all_metrics()) - set(rounded) == {"uds", "gradient_norm", "relearning", "quantization"}


def test_metrics_run_in_table_order_and_references_are_not_attacked():
    assert selected_metrics(["judge", "memorization"], sets=BOTH, weights=True) == ["memorization", "judge"]
    assert selected_metrics("rouge", sets=BOTH, weights=True) == ["rouge"]
    assert selected_metrics(["judge", "quantization"], sets=BOTH, weights=True, references=True) == ["judge"]
    assert selected_metrics(None, sets=BOTH, weights=True) == ["memorization", "scores", "rouge"]
    assert selected_metrics(None, sets=["retain"], weights=True) == ["memorization", "rouge"]
    assert selected_metrics(None, sets=["rwku", "tasks"], weights=True) == ["rwku", "tasks"]


def test_tasks_and_probes_without_their_metric_are_rejected():
    for given in ("tasks", "rwku"):
        with pytest.raises(ValueError, match=f"{given}.*rouge.*{given}"):
            check_inputs_used(["rouge"], sets=[*BOTH, given], weights=True)
        check_inputs_used(["rouge", given], sets=[*BOTH, given], weights=True)
    with pytest.raises(ValueError, match=r"'tasks'.*weights"):
        check_inputs_used(["rouge"], sets=[*BOTH, "tasks"], weights=False)
    check_inputs_used(["rouge"], sets=BOTH, weights=False)


@pytest.fixture
def rows():
    return {"forget": invented_people(6, "F"), "retain": invented_people(8, "R")}


def run(rows, **options):
    usual = {"generator": Speaker(), "judge": Dice(), "settings": CONFIG, "metrics": "judge"}
    return evaluate(None, rows, Evaluation(**(usual | options), progress=False))


def test_a_served_model_supports_only_metrics_of_generated_text(rows):
    found = run(rows, metrics="all")
    assert found.settings["metrics"] == [
        "rouge",
        "key_tokens",
        "forms",
        "fluency",
        "judge",
        "open_ended",
        "families",
        "sampling",
    ]
    assert (found.settings["rep_tokenizer"], found.settings["questions_per_row"]["forget"]) == ("words", [2])
    assert len(found.fingerprint) == 32
    with pytest.raises(ValueError, match="weights"):
        run(rows, metrics=["judge", "quantization"])
    with pytest.raises(ValueError, match=r"model.*generator"):
        run(rows, generator=None)
    with pytest.raises(ValueError, match=r"forget.*retain"):
        run({})


def test_references_must_be_measured_with_the_same_settings(rows):
    original = run(rows, name="original")
    for options, named in (
        ({"judge": Dice(name="other")}, "judge .*other"),
        ({"settings": EvaluateConfig(**{**CONFIG.values, "paraphrases": 2})}, r"paraphrases \(1 .*2\)"),
        ({"settings": EvaluateConfig(**{**CONFIG.values, "max_new_tokens": 7})}, r"max_new_tokens \(64 .*7\)"),
    ):
        with pytest.raises(ValueError, match=rf"original result \(original\).*{named}"):
            run(rows, original=original, **options)
    with pytest.raises(ValueError, match="the pool rows"):
        run(rows | {"pool": invented_people(9, "R")}, original=original)
    with pytest.raises(ValueError, match=r"retain-only result.*\bforget rows"):
        run(rows | {"forget": invented_people(5, "F")}, retain_only=original)


def test_batches_metrics_and_further_sets_may_differ(rows, tmp_path):
    original = run(rows, metrics="all", name="original", judge=Dice([True]))
    original.write(tmp_path / "original.json")
    for loaded in (original, read_result(tmp_path / "original.json")):
        found = run(
            rows | {"holdout": invented_people(3, "H"), "world_facts": invented_people(4, "W")},
            judge=Dice([True, False, False]),
            original=loaded,
            settings=EvaluateConfig(**{**CONFIG.values, "batch_tokens": 100}),
        )
        assert {"FQ", "RD", "UQ"} == set(found.overall)
        assert set(found.sets) == {"forget", "retain", "world_facts"}
        assert found.references == {"original": original.fingerprint}


def test_rwku_probes_are_scored_by_kind(rows):
    texts = (
        ("fb", "Orla Venn was born in ___.", "Kelbury market town"),
        ("qa", "Where was Orla Venn born?", "Kelbury"),
        ("aa", "Just say it.", "Kelbury"),
        ("neighbour_fb", "Tavi Brook sells ___.", "salt and rope"),
        ("neighbour_qa", "What does Tavi Brook sell?", "salt"),
    )
    about = [Probe(kind, Example.from_qa(query, answer, subject="Orla Venn")) for kind, query, answer in texts]
    probes = Probes("rwku", probes=tuple(about))
    speaker = Speaker(say=lambda prompt: "Kelbury, salt")
    found = run(
        {},
        probes=probes,
        generator=speaker,
        metrics="rwku",
        settings=EvaluateConfig(**{**CONFIG.values, "rwku_flavours": ("port",)}),
    )
    with pytest.raises(ValueError, match=r"rwku.*\bjudge\b"):
        run(rows, probes=probes)
    recalls = {name: (value.value, value.n, value.direction) for name, value in found.sets["rwku"].items()}
    assert recalls == {
        "fb_port": (pytest.approx(1 / 3), 1, "down"),
        "qa_port": (1.0, 1, "down"),
        "aa_port": (1.0, 1, "down"),
        "neighbour_fb_port": (pytest.approx(1 / 3), 1, "up"),
        "neighbour_qa_port": (1.0, 1, "up"),
    }
    assert found.overall["N_delta_port"].value == pytest.approx(2 / 3 - 7 / 9)
    assert found.overall["N_delta_port"].low is None


def test_missing_packages_are_reported_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge", None)
    with pytest.raises(ImportError, match=r"rouge.* 'atwu\[rwku\]"):
        check_installed(["memorization", "rwku"], EvaluateConfig())
    check_installed(["rwku"], EvaluateConfig(rwku_flavours=("port",)))  # which does without
    setting = replace(find_setting("people-tiny"), metrics=("rwku",))
    monkeypatch.setattr(conduct, "prepare_models", lambda *_, **__: pytest.fail("a model was taught"))
    planned = plan(read_study("headline"), setting, Path("out"))
    with InProcessExecutor() as executor, pytest.raises(ImportError, match="rouge"):
        conduct.run_study(planned, executor, judging=JudgeOptions(), command="")
