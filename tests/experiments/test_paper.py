"""The page on the paper's tables lists every published table, and every command on it can be planned."""

from __future__ import annotations

import re
import shlex

import pytest

from atwu.cli.cli_options import parse_command
from atwu.cli.study import StudyRunCommand, TuneCommand
from atwu.experiments.published_comparison import published_table, published_tables
from atwu.experiments.study_models import needs_preferred_answers
from atwu.experiments.study_plan import plan_study
from atwu.experiments.tune_methods import plan_tuning
from atwu.methods.method_table import METHODS
from atwu.methods.presets import shipped_presets
from tests.snippets import ROOT

PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
LINES = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in PAGE.splitlines() if line.startswith("| ")][
    1:
]
STUDIES = [
    (table, f"atwu study run {found[0]} --configuration authors")
    for _, table, cell in LINES
    if (found := re.findall(r"^`([\w-]+ --setting [^`]*)`", cell))
]

NOT_HERE = {"uniform"}
"""Score of the AUROC table that is 1/2 by definition."""


def test_every_published_table_exists_once():
    listed = [table.strip("`") for _, table, _ in LINES if table != "–"]
    others = re.findall(r"`([\w-]+)`", BENCHMARKS.split("**Published tables.**")[1].split("\n\n")[0].split(":")[1])
    assert sorted([*listed, *others]) == sorted(published_tables())


@pytest.mark.parametrize(("table", "command"), STUDIES, ids=[command for _, command in STUDIES])
def test_every_study_plans_the_published_runs(table, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paraphrases.jsonl").write_text("{}\n")
    asked = parse_command(StudyRunCommand, shlex.split(command)[3:], name="study run")
    found = plan_study(
        asked.study,
        asked.setting,
        output=tmp_path,
        paraphrases=asked.paraphrases or (),
        configurations=asked.configuration,
    )
    assert {run.config(found.setting).configuration for run in found.runs} == {"authors"}
    if table == "–":
        return
    name = table.strip("`")
    published = published_table(name)
    there = {run.label for run in found.runs}
    assert set(published.rows) - {"original"} - NOT_HERE <= there
    usual = found.study.published.get(found.setting.name, found.study.published.get("default"))
    assert usual == name or name in ("tofu-forget10-8b", "rwku-panel")
    for run in found.runs:
        if run.label in published.rows and run.label in METHODS and "older version" not in " ".join(published.notes):
            preset = shipped_presets(found.setting.presets or found.setting.name).get(run.method)
            if preset is not None:
                assert run.config(found.setting).learning_rate == preset.options["learning_rate"]


def test_preference_methods_on_rwku_use_its_pairs(tmp_path):
    found = plan_study("other-losses", "rwku-phi3", output=tmp_path, configurations=["authors"])
    prefer = {run.label for run in found.runs if needs_preferred_answers(run.config(found.setting))}
    assert (found.setting.paired, prefer) == ("rwku:canonical:phi3_pairs", {"dpo", "atwu_dpo"})


def test_scorers_on_frozen_models_train_as_published(tmp_path):
    """One pass, an update per micro-batch: 50 of 8 rows on forget10; with the annotation and nothing else, or without it."""
    found = plan_study("separability", "tofu-8b", output=tmp_path, seeds=1, configurations=["authors"])
    runs = {run.label: (run, run.config(found.setting)) for run in found.runs}
    assert runs.pop("atwu")[1].learning_rate > 0
    assert {label: run.start for label, (run, _) in runs.items()} == {
        "trained on labels": None,
        "frozen target": None,
        "frozen retain-only": "retain-only",
    }
    for label, (_, config) in runs.items():
        assert (config.learning_rate, config.num_train_epochs, config.rows_per_step) == (0.0, 1, 8)
        how = config.recipe().scores
        labels = label == "trained on labels"
        assert (how.scorer_objective, how.scorer_every, how.hidden_position) == (
            "labels" if labels else "matched", 1, "own",
        )  # fmt: skip
        assert (how.lambda_entropy, how.lambda_budget) == ((0.0, 0.0) if labels else (1.0, 15.0))


def test_the_search_has_the_published_definition(tmp_path):
    (command,) = re.findall(r"`(atwu tune [^`]*)`", PAGE)
    asked = parse_command(TuneCommand, shlex.split(command)[2:], name="tune")
    tuning = plan_tuning(
        asked.method,
        setting=asked.setting,
        transfer_to=asked.transfer_to,
        trials=asked.trials,
        transfer_trials=asked.transfer_trials,
        output=tmp_path,
    )
    assert (tuning.first_stage.name, tuning.last_stage.name, tuning.trials, tuning.transfer_trials) == (
        "rwku-phi3",
        "rwku-phi3",
        20,
        5,
    )
