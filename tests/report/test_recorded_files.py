"""Recorded results of studies, presets and trials have today's schemas."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from atwu.experiments.tune_methods import SEARCH_SCHEMA
from atwu.report.read_records import read_records
from atwu.training.config import read_preset
from tests.snippets import PAGES, RECORDED, snippets

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
BLOCKS = [block for page in (*PAGES, *RECORDED) for block in snippets(page)]
COMMANDS = [shlex.split(command) for block in BLOCKS if block.kind == "shell" for command in block.commands()]
STUDIES = ["known-first-place", "people-first-place", "rwku-finetuned", "tofu-forget05", "tofu-part"]


@pytest.mark.parametrize("name", STUDIES)
def test_results_of_studies_are_read(name: str) -> None:
    files = sorted((RESULTS / name).glob("*.json"))
    records = read_records([RESULTS / name])
    assert len(records.runs) + len(records.references) == len(files)
    for words in COMMANDS:
        if f"benchmarks/results/{name}" in words and "--baseline" in words:
            assert words[words.index("--baseline") + 1] in records.results, shlex.join(words)


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*/tuned/*.trials.json")), ids=lambda file: file.name)
def test_trials_of_searches_are_of_their_setting(file: Path) -> None:
    trials = json.loads(file.read_text())
    assert trials["schema"] == SEARCH_SCHEMA
    assert {search["setting"] for search in trials["searches"]} == {file.parents[1].name}


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*/tuned/*.yaml")), ids=lambda file: file.name)
def test_tuned_presets_are_read(file: Path) -> None:
    assert read_preset(file).method in file.name
