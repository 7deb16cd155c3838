"""`atwu report`: from finished runs on disk to tables, figures and a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from atwu._cache import short_hash
from atwu.evaluation.result import EvalResult, MetricValue


def write_run(folder: Path, name: str, left: float, *, seed: int | None = None) -> None:
    cells = {
        "forget": {"extraction_strength": MetricValue(left, 8, "down", low=left - 0.05, high=left + 0.05, clusters=4)},
        "retain": {"extraction_strength": MetricValue(0.9 - left / 4, 8, "up")},
    }
    folder.mkdir(parents=True)
    full = name if seed is None else f"{name}-s{seed}"
    EvalResult(full, short_hash(full), cells, {}, {}, {}, {}).write(folder / "eval.json")
    if seed is not None:
        run = {"seed": seed, "method": name, "recipe": {"weighting": "uniform"}, "train_seconds": 3.0 + seed}
        (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "pebbles"
    write_run(folder / "references" / "original", "original", 0.95)
    for name, left in (("atwu", 0.1), ("npo", 0.4)):
        for seed in (0, 1):
            write_run(folder / "runs" / f"{name}-s{seed}", name, left + seed / 50, seed=seed)
    study = {"title": "Pebbles", "variants": [{"label": "npo"}, {"label": "atwu"}], "budget": "5 trials each"}
    study["runs"] = [f"{name}-s{seed}" for name in ("atwu", "npo") for seed in (0, 1)]
    (folder / "study.json").write_text(json.dumps(study), encoding="utf-8")
    return folder


@pytest.fixture
def report(atwu):
    return lambda *arguments, code=0: atwu("report", *arguments, code=code, COLUMNS=300)


def test_prints_the_table(report, study) -> None:
    out = report(study)
    for words in ("ES_F ↓", "atwu 0.110", "npo 0.410", "original 0.950", "Tuning budget: 5 trials each"):
        assert words in out
    assert "error: " in report(study / "nothing", code=1)
    assert "model" in report(study / "references" / "original", code=2)  # only reference models


def test_the_suffix_of_the_output_determines_the_format(report, study, tmp_path) -> None:
    for name, start in (("a.md", "| method"), ("b.tex", "% needs"), ("c.csv", "label,"), ("deep/d.json", "{")):
        assert f"wrote {tmp_path / name}" in report(study, "--output", tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert "| npo | 0.410 ± 0.014" in (tmp_path / "a.md").read_text(encoding="utf-8")


def test_an_existing_file_is_replaced_only_with_overwrite(report, study, tmp_path) -> None:
    (tmp_path / "a.md").write_text("mine")
    assert re.search("a.md .*--overwrite", report(study, "--output", tmp_path / "a.md", code=1))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.md", "mine")]
    report(study, "--output", tmp_path / "a.md", "--overwrite")
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("| method")


def test_page_and_figures_at_once(report, study, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    figures = tmp_path / "figures"
    report(study, "--output", tmp_path / "report.html", "--figures", figures, "--focus", "npo")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Pebbles" in page
    assert "atwu report" in page
    assert "<svg" in page
    assert sorted(path.name for path in figures.iterdir()) == ["trade_off.pdf", "trade_off.svg"]


def test_single_runs_and_result_files_are_accepted(report, study, tmp_path) -> None:
    runs = study / "runs" / "npo-s0", study / "references" / "original" / "eval.json"
    report(*runs, "--output", tmp_path / "table.md")
    out = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| npo | 0.400" in out
    assert "| original | 0.950" in out
    assert "Tuning budget: not stated" in out


def test_labels_stay_distinct_when_folders_are_dropped_from_paths(report, tmp_path) -> None:
    labels = [f"forget_words=/{folder}/x.txt" for folder in "ab"]
    for label, left in zip(labels, (0.1, 0.4), strict=True):
        write_run(tmp_path / "runs" / label[14], label, left, seed=1)
    failed = {f"{labels[1]}-s2": "diverged"}
    study = {"variants": [{"label": label} for label in labels], "runs": ["a", "b", "c"], "failed": failed}
    (tmp_path / "study.json").write_text(json.dumps(study), encoding="utf-8")
    one, other = (f"forget_words=x.txt ({short_hash(label)[:6]})" for label in labels)

    def written(ending: str) -> str:
        report(tmp_path, "--output", tmp_path / f"table.{ending}", "--overwrite")
        return (tmp_path / f"table.{ending}").read_text(encoding="utf-8")

    for ending in ("md", "csv", "json"):
        out = written(ending)
        assert not re.search("/[ab]/", out)
        assert one in (plain := out.replace("\\", ""))
        assert other in plain
    assert "forget_words=x.txt-s2 (diverged)" in written("md").replace("\\", "")
    alone = study | {"variants": study["variants"][:1], "runs": ["a"], "failed": {}}
    (tmp_path / "study.json").write_text(json.dumps(alone), encoding="utf-8")
    assert "forget_words=x.txt," in written("csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--output", "report.docx"), "--output .*html"),
        (("--focus", "rmu"), "--focus .*npo, atwu.*'rmu'"),
    ],
)
def test_errors_name_the_mistake(report, study, arguments, message) -> None:
    assert re.search(message, report(study, *arguments, code=2))


def test_a_run_without_an_evaluation_names_the_commands_that_work(report, tmp_path) -> None:
    (tmp_path / "run.json").write_text("{}")
    message = f"{tmp_path} is a model without an evaluation; first: atwu evaluate --model {tmp_path} .*atwu evidence"
    assert re.search(message, report(tmp_path, code=1))
