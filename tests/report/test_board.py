"""The board: from study folders and submissions to its file and page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atwu._file_reading import read_yaml, type_adapter, validated
from atwu.cli.app import run_cli
from atwu.evaluation.result import format_interval
from atwu.report.board import BOARD_NAME, FACTS_NAME, StudyFacts, read_board, render_board
from atwu.report.report_page import facts
from atwu.report.report_records import Records
from tests.report.conftest import Page

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
FACTS = {"benchmark": "Pebbles", "model": "pebble-1b", "records": "https://example.org/runs"}


@pytest.fixture
def study(study_folder: Path) -> Path:
    """A study that a `board.yaml` describes in part; `study.json` states the rest."""
    (study_folder / FACTS_NAME).write_text(json.dumps(FACTS))
    return study_folder


def test_a_study_becomes_a_board_and_the_board_a_submission(study: Path, records: Records, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    run_cli(["report", str(study), "--output", str(one)])
    (read,) = read_board([one / BOARD_NAME]).studies
    assert read.facts == StudyFacts(
        **FACTS, about=records.title, command=records.study["command"], budget=records.study["budget"]
    )
    assert dict(facts(read.records))["seeds each"] == "2"
    assert read.runs["wga"]["seed"] == 0
    for label, result in records.results.items():
        assert (read.results[label].sets, read.results[label].overall) == (result.sets, result.overall)
        assert not read.results[label].rows
    run_cli(["report", str(one), "--output", str(two)])
    for name in ("index.html", BOARD_NAME):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    with pytest.raises(FileExistsError):
        run_cli(["report", str(study), "--output", str(one)])
    with pytest.raises(ValueError, match="'Pebbles' on 'pebble-1b' is given twice"):
        read_board([study, one / BOARD_NAME])


def test_the_page_shows_every_study(study: Path, records: Records) -> None:
    page = Page(render_board(read_board([study])))
    cell = records.results["atwu"].sets["forget"]["extraction_strength"]
    assert page.values("headline-1").keys() == page.values("headline-all").keys() == records.results.keys()
    assert str(cell.value) in page.values("headline-1")["atwu"]
    for told in (format_interval(cell), "Pebbles · pebble-1b", records.study["budget"], records.study["command"]):
        assert told in page.visible
    assert [about["data-model"] for _, about in page.elements if "data-model" in about] == ["pebble-1b"]
    assert len(page.classed("figure")) == 2
    assert ("a", {"href": "https://example.org/runs"}) in page.elements


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: file["studies"][0]["facts"].pop("model"), "studies.0.facts.model"),
        (lambda file: file["studies"][0]["facts"].update(url="x"), "studies.0.facts.url"),
        (lambda file: file["studies"][0].update(results={}), "results need at least one unlearned model"),
        (lambda file: file["studies"][0]["facts"].update(records="javascript:x"), "javascript:x"),
        (lambda file: file.update(studies=[]), "at least 1 item"),
        (lambda file: file.update(schema="atwu.eval/3"), "has the schema 'atwu.eval/3', expected 'atwu.board/1'"),
        (lambda file: file.update(schema="atwu.board/0"), "has the schema 'atwu.board/0', expected 'atwu.board/1'"),
    ],
)
def test_a_wrong_submission_is_refused_in_one_line(
    change: Callable[[dict[str, Any]], None], said: str, study: Path, tmp_path: Path
) -> None:
    file = read_board([study]).to_json()
    change(file)
    path = tmp_path / BOARD_NAME
    path.write_text(json.dumps(file))
    with pytest.raises(ValueError, match="board") as error:
        read_board([path])
    assert str(error.value).startswith(str(path))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "nowhere not found; give a study folder, .* board.json"),
        ("mine.yaml", "mine.yaml, line 1, .*invalid JSON.* atwu report STUDY --output FOLDER writes a board"),
        ("study.json", "study.json has the schema 'atwu.study/2', expected 'atwu.board/1'. atwu report"),
        ("config.json", "config.json has the schema 'None', expected 'atwu.board/1'"),
        ("", " is a model without an evaluation; first: atwu evaluate"),
    ],
)
def test_a_wrong_kind_of_path_is_named_with_what_is_allowed(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("methods: all\n")
    (tmp_path / "study.json").write_text('{"schema": "atwu.study/2"}') if name else None
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        read_board([tmp_path / name])


def test_a_folder_of_results_needs_its_facts(records: Records, tmp_path: Path) -> None:
    for run in records.runs:
        run.result.write(tmp_path / f"{run.label}-s{run.seed}.json")
    with pytest.raises(ValueError, match=r"board\.yaml: benchmark: .* \(and 2 more\)\. board\.yaml in"):
        read_board([tmp_path])
    (tmp_path / FACTS_NAME).write_text("Pebbles")
    with pytest.raises(
        ValueError, match=r"board\.yaml must hold keys and their values\. board\.yaml in this folder states"
    ):
        read_board([tmp_path])
    (tmp_path / FACTS_NAME).write_text(json.dumps(FACTS | {"command": "atwu evaluate"}))
    assert set(read_board([tmp_path]).studies[0].results) == {"atwu", "wga", "npo"}


@pytest.mark.parametrize("file", sorted(RESULTS.glob(f"*/{FACTS_NAME}")), ids=lambda file: file.parent.name)
def test_recorded_studies_state_their_facts(file: Path) -> None:
    facts = validated(read_yaml(file), type_adapter(StudyFacts), what=str(file))
    assert (RESULTS.parents[1] / facts.records) == file.parent
