"""Files of earlier versions are still read, with today's keys."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from atwu._file_reading import read_upgraded_json
from atwu.report.run_records import read_records, read_run, read_study_record
from atwu.training.preset_files import read_preset
from atwu.training.run_folder import RunFolder
from tests.snippets import ROOT, snippets

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
BLOCKS = [block for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) for block in snippets(page)]
COMMANDS = [shlex.split(command) for block in BLOCKS if block.kind == "shell" for command in block.commands()]
STUDIES = ["known-first-place", "people-first-place", "rwku-finetuned", "tofu-forget05", "tofu-part"]


@pytest.mark.parametrize("name", STUDIES)
def test_results_of_studies_are_read(name: str) -> None:
    files = sorted((RESULTS / name).glob("*.json"))
    assert {json.loads(file.read_text())["schema"] for file in files} == {"atwu.eval/2"}
    records = read_records([RESULTS / name])
    assert len(records.runs) + len(records.references) == len(files)
    old = {name for file in files for columns in json.loads(file.read_text())["sets"].values() for name in columns}
    new = {name for result in records.results.values() for columns in result.sets.values() for name in columns}
    assert len(old) == len(new)
    assert not any(name.startswith(("telling", "prose")) for name in new)
    for words in COMMANDS:
        if f"benchmarks/results/{name}" in words and "--baseline" in words:
            assert words[words.index("--baseline") + 1] in records.results, shlex.join(words)


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*/tuned/*.trials.json")), ids=lambda file: file.name)
def test_trials_of_searches_are_read(file: Path) -> None:
    assert json.loads(file.read_text())["schema"] == "atwu.search/1"
    trials = read_upgraded_json(file)
    assert trials["schema"] == "atwu.search/2"
    assert {search["setting"] for search in trials["searches"]} == {file.parents[1].name}


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*/tuned/*.yaml")), ids=lambda file: file.name)
def test_tuned_presets_are_read(file: Path) -> None:
    assert read_preset(file).method in file.name


def test_records_of_runs_and_studies_are_read(tmp_path: Path) -> None:
    run = {
        "schema": "atwu.run/1",
        "seed": 1,
        "starting_model": {"model": "target"},
        "config": {"weighting": "key_words"},
    }
    study = {"schema": "atwu.study/1", "runs": ["atwu-s1"], "scale": {"name": "people-tiny", "taught_seconds": 3.0}}
    for name, record in (("run", run), ("study", study)):
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    assert read_run(tmp_path / "run.json")["original_model"] == {"model": "target"}
    assert read_run(tmp_path / "run.json")["config"] == {"weighting": "key_tokens"}
    assert read_study_record(tmp_path / "study.json")["setting"] == {"name": "people-tiny", "target_seconds": 3.0}
    assert RunFolder(tmp_path, overwrite=True).path == tmp_path
