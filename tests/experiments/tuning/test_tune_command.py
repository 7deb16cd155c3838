"""`atwu tune` from a setting file to presets for `atwu unlearn`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from atwu.benchmarks.people_rows import people
from atwu.training.config import UnlearnConfig, read_preset
from tests.commands import run_here
from tests.micro_models import write_models


@pytest.fixture(scope="module")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A setting of a few thousand parameters and twelve rows."""
    folder = tmp_path_factory.mktemp("micro")
    rows = people("tiny")
    write_models(folder / "model")
    for name, few in (("forget", rows.forget[:6]), ("retain", rows.retain[:6])):
        lines = [json.dumps({"question": row.question, "answer": row.answer}) for row in few]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    setting = {
        "benchmark": {"forget": str(folder / "forget.jsonl"), "retain": str(folder / "retain.jsonl")},
        "target": str(folder / "model"),
        "training": {"num_train_epochs": 1, "gradient_accumulation_steps": 1, "save_strategy": "no"},
        "learning_rate": 1e-3,
        "learning_rates": [1e-4, 1e-2],
    }
    (folder / "micro.yaml").write_text(yaml.safe_dump(setting))
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: str) -> str:
    done = run_here("tune", *arguments)
    if done.exception is not None:
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.night
def test_variants_of_a_study_are_tuned_separately_and_run_with_their_own_presets(micro, tmp_path, monkeypatch):
    lines = [{"label": "by rarity", "method": "satga", "weighting": "rarity"}, {"method": "satga", "beta": 2.5}]
    study = tmp_path / "mine.yaml"
    study.write_text(yaml.safe_dump({"methods": lines, "seeds": 1, "metrics": ["memorization"]}))
    at = ("--setting", str(micro / "micro.yaml"))
    said = run("--study", str(study), *at, "--trials", "1", "--output", str(tmp_path / "tuned"))
    assert re.search("2 variants .*1 trials .*micro", said)
    assert f"atwu study run {study} --setting {micro}/micro.yaml --presets {tmp_path}/tuned" in said
    presets = (tmp_path / "tuned").glob("*.yaml")
    found = {path.stem.rpartition("-")[0] or path.stem: read_preset(path) for path in presets}
    assert {preset.method for preset in found.values()} == {"satga"}
    assert found["by_rarity"].options["weighting"] == "rarity"
    assert {preset.about["budget"] for preset in found.values()} == {"1 trial at micro"}
    done = run_here(
        "study", "run", str(study), *at, "--presets", str(tmp_path / "tuned"), "--output", str(tmp_path / "out")
    )
    assert done.exit_code == 0, done.output
    assert "tuning budget: 1 trial at micro" in " ".join(done.output.split())
    written = json.loads((tmp_path / "out" / "study.json").read_text())
    options = {variant["label"]: variant["options"] for variant in written["variants"]}
    for label, name in (("by rarity", "by_rarity"), ("satga", "satga")):
        tuned = found[name].options
        assert options[label].items() >= {key: tuned[key] for key in ("learning_rate", "forget_weight", "beta")}.items()
    assert options["satga"]["beta"] == 2.5


def test_a_missing_optuna_is_reported_before_any_training(micro, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"optuna.*pip install 'atwu\[tune\]'"):
        run("--method", "atwu", "--trials", "1", "--output", str(tmp_path / "out"))
    assert not (tmp_path / "cache").exists()


def test_tuning_needs_either_methods_or_a_study_without_dependent_variants(micro, tmp_path):
    for given in ((), ("--method", "atwu", "--study", "headline")):
        with pytest.raises(ValueError, match=r"--method.*--study"):
            run(*given, "--output", str(tmp_path))
    study = tmp_path / "mine.yaml"
    study.write_text("methods: [atwu, {label: again, method: atwu, scorer_from: atwu, scorer_procedure: frozen}]")
    with pytest.raises(ValueError, match="'again'"):
        run("--study", str(study), "--output", str(tmp_path))


@pytest.mark.slow
def test_searches_continue_and_write_presets_with_equal_budgets(micro, tmp_path):
    given = (
        "--method",
        "grad_diff",
        "--method",
        "atwu",
        "--setting",
        str(micro / "micro.yaml"),
        "--output",
        str(tmp_path),
    )
    said = run(*given, "--trials", "2", "--set", "weight_decay=0.02")
    assert re.search("2 methods .*2 trials .*micro", said)
    assert len(re.findall(r"\b2 trials, 0 pruned", said)) == 2
    assert f"atwu unlearn --config {tmp_path}/grad_diff.yaml --model {micro}/model" in said
    assert not list(tmp_path.rglob("model.safetensors"))
    preset = read_preset(tmp_path / "atwu.yaml")
    assert preset.about["budget"] == "2 trials at micro"
    assert preset.about["result"].keys() == {"ES_delta", "ES_forget", "ES_retain"}
    assert preset.about["source"].endswith("--trials 2 --set weight_decay=0.02")
    assert str(tmp_path) not in preset.about["source"]
    config = UnlearnConfig(**preset.options)
    assert (config.method, config.num_train_epochs, config.weight_decay) == ("atwu", 1, 0.02)
    found = json.loads((tmp_path / "atwu.trials.json").read_text())
    (search,) = found["searches"]
    assert search["budget"]["trials"] == len(search["trials"]) == 2
    best = max(search["trials"], key=lambda trial: trial["value"])
    assert preset.values["forget_weight"] == pytest.approx(best["point"]["forget_weight"])
    assert preset.options["learning_rate"] == pytest.approx(best["point"]["learning_rate"])
    again = run(*given, "--trials", "3", "--set", "weight_decay=0.02")
    assert "micro/atwu: 2 of 3 trials" in again
    more = json.loads((tmp_path / "atwu.trials.json").read_text())["searches"][0]
    assert more["trials"][:2] == search["trials"]
    with pytest.raises(ValueError, match=r"options\.weight_decay"):
        run(*given, "--trials", "3")


@pytest.mark.slow
def test_the_second_stage_and_methods_that_cannot_be_tuned(micro, tmp_path, monkeypatch):
    monkeypatch.setattr("atwu.experiments.tune_methods.METHODS", dict.fromkeys(["grad_diff", "gt_ga"]))
    setting = str(micro / "micro.yaml")
    said = run(
        *("--method", "all", "--setting", setting, "--trials", "1", "--transfer-to", setting, "--transfer-trials", "1"),
        *("--output", str(tmp_path)),
    )
    assert re.search("not tuned: gt_ga", said)
    assert "forget_spans" in said
    assert "micro/grad_diff/to-micro-" in said
    about = read_preset(tmp_path / "grad_diff.yaml").about
    assert about["budget"] == "1 trial at micro, then 1 trial of the learning rate at micro"
    assert about["source"].startswith("atwu tune --method all --setting micro.yaml --trials 1 --transfer-to micro.yaml")
