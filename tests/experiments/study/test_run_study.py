"""A complete study by command: planned, run by two workers, stopped, resumed, skipped, compared."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from atwu.report.read_records import read_records
from tests.commands import Started, run_command
from tests.micro_models import write_models

METHODS = ("wga", "atwu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """An untrained model, and a study of it."""
    root = tmp_path_factory.mktemp("study")
    write_models(root / "model", root / "other")
    (root / "mine.yaml").write_text(
        f"""
title: Mine
methods: [wga, atwu, {{label: frozen, method: atwu, scorer_from: atwu, scorer_procedure: frozen}}]
seeds: 1
metrics: [memorization, scores]
published: tofu-forget10-1b
setting:
  like: people-tiny
  name: micro
  target: {root / "model"}
  retain_only: {root / "other"}
  training: {{max_steps: 3, per_device_train_batch_size: 4, save_strategy: "no", noun_finder: simple}}
"""
    )
    return root


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    changes = {"ATWU_CACHE": str(tmp_path_factory.mktemp("cache")), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return os.environ | changes | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}


def run(environment, *arguments: object, code: int = 0) -> str:
    done = run_command(["study", *arguments], env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def values(folder: Path) -> dict[str, object]:
    """Every number of a study, without times."""
    found = {}
    for path in sorted(folder.glob("runs/*/eval.json")):
        plain = json.loads(path.read_text())
        found[path.parent.name] = (plain["sets"], plain["overall"], plain["fingerprint"])
    return found


@pytest.fixture(scope="module")
def finished(folder, environment) -> Path:
    """The study, run without interruption."""
    printed = run(environment, "run", folder / "mine.yaml", "--output", folder / "whole", "--processes", 1)
    assert re.search("3 of 3 runs.*1 in parallel", printed)
    assert "tuning budget: published values" in printed
    return folder / "whole"


def test_a_run_writes_one_folder_without_weights(finished):
    for label in (*METHODS, "frozen"):
        names = {path.name for path in (finished / "runs" / f"{label}-s1").iterdir()}
        assert {"run.json", "log.jsonl", "eval.json", "timing.json", "trace.json"} <= names
        assert "model.safetensors" not in names
        assert ("scorer.safetensors" in names) == (label in ("atwu", "frozen"))
    assert len(list((finished / "jobs").iterdir())) == 5
    names = {path.name for path in finished.iterdir()}
    assert {"study.json", "table.md", "results.csv", "results.json", "report.html"} <= names


def test_records_are_grouped_by_label_and_seed(finished):
    records = read_records([finished])
    assert records.labels == (*METHODS, "frozen")
    assert [run.seed for run in records.of("atwu")] == [1]
    assert set(records.references) == {"original", "retain-only"}
    trace = records.of("atwu")[0].trace
    assert trace.steps == (0, 1, 2, 3)
    assert trace.auroc["forget"][0] == 0.5  # an untrained scorer
    assert {row.set for row in trace.rows} == {"forget", "holdout"}


def test_a_frozen_scorer_comes_from_the_named_run(finished):
    scorers = [(finished / "runs" / f"{label}-s1" / "scorer.safetensors").read_bytes() for label in ("atwu", "frozen")]
    assert scorers[0] == scorers[1]


def test_finished_runs_are_skipped(finished, folder, environment):
    before = {path: path.stat().st_mtime_ns for path in finished.glob("runs/*/*")}
    printed = run(environment, "run", folder / "mine.yaml", "--output", finished)
    assert "0 of 3 runs" in printed
    assert {path: path.stat().st_mtime_ns for path in finished.glob("runs/*/*")} == before


def stop_with(number, *, after, folder, output, environment):
    """Send two workers and their driver a signal, once so many runs are finished."""
    process = Started(["study", "run", folder / "mine.yaml", "--output", output, "--processes", 2], env=environment)
    deadline = time.monotonic() + 300
    while len(list(output.glob("runs/*/eval.json"))) < after:
        assert not process.ended(), "the study ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send(number)
    return process.wait()


@pytest.fixture(scope="module")
def continued(finished, folder, environment) -> Path:
    """The same study, stopped while two workers were at it, and continued by one."""
    output = folder / "stopped"
    stopped = stop_with(signal.SIGTERM, after=1, folder=folder, output=output, environment=environment)
    assert stopped.returncode == 128 + signal.SIGTERM
    last = r"atwu study run: stopped by SIGTERM; the same command \w+"
    assert re.fullmatch(last, stopped.stderr.splitlines()[-1])
    assert "Traceback" not in stopped.stderr
    assert len(list(output.glob("runs/*/eval.json"))) < 3
    run(environment, "run", folder / "mine.yaml", "--output", output, "--processes", 1)
    return output


@pytest.mark.slow
def test_a_stopped_study_resumes_to_the_same_values_with_any_number_of_workers(finished, continued):
    assert len(values(finished)) == 3
    assert values(continued) == values(finished)


@pytest.mark.slow
def test_runs_with_other_settings_are_rejected_and_repeated_with_overwrite(continued, folder, environment):
    changed = folder / "changed.yaml"
    changed.write_text((folder / "mine.yaml").read_text().replace("max_steps: 3", "max_steps: 2"))
    arguments = ("run", changed, "--output", continued, "--only", "wga", "--seeds", 1)
    before = (continued / "runs" / "wga-s1" / "run.json").read_bytes()
    printed = run(environment, *arguments, code=1)
    assert re.search(r"settings.*training", printed)
    assert (continued / "runs" / "wga-s1" / "run.json").read_bytes() == before
    run(environment, *arguments, "--overwrite")
    assert json.loads((continued / "runs" / "wga-s1" / "run.json").read_text())["steps"] == 2


def test_compare_reports_which_orderings_hold(finished, environment):
    printed = run(environment, "compare", finished)
    assert "micro compared with: " in printed
    assert "atwu better than wga" in printed
    assert "ES_delta: " in printed
    assert "open" in printed  # an untrained model has nothing to forget: all differences are 0


def test_a_missing_prerequisite_of_all_runs_ends_the_command(environment, tmp_path):
    (tmp_path / "bad.yaml").write_text(
        f"methods: [wga]\nseeds: 1\nmetrics: [memorization]\nsetting: {{like: people-tiny, target: {tmp_path / 'missing'}, "
        "training: {max_steps: 1}}\n"
    )
    given = ("run", tmp_path / "bad.yaml", "--output", tmp_path / "bad", "--processes", 1)
    assert "missing" in run(environment, *given, code=1).rpartition("error: ")[2]
