"""The board: from study folders to its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atwu._file_reading import read_yaml, type_adapter, validated
from atwu.cli.app import run_cli
from atwu.evaluation.result import format_interval
from atwu.report.board import FACTS_NAME, StudyFacts, read_board, render_board
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


def test_a_study_is_read_with_its_facts_and_written_as_a_page(study: Path, records: Records, tmp_path: Path) -> None:
    board = tmp_path / "board"
    run_cli(["report", str(study), "--output", str(board)])
    (read,) = read_board([study])
    assert read.facts == StudyFacts(
        **FACTS, about=records.title, command=records.study["command"], budget=records.study["budget"]
    )
    assert dict(facts(read.records))["seeds each"] == "2"
    for label, result in records.results.items():
        assert (read.records.results[label].sets, read.records.results[label].overall) == (result.sets, result.overall)
    assert (board / "index.html").read_text(encoding="utf-8") == render_board([read])
    with pytest.raises(FileExistsError):
        run_cli(["report", str(study), "--output", str(board)])
    with pytest.raises(ValueError, match="'Pebbles' on 'pebble-1b' is given twice"):
        read_board([study, study])


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
    ("changes", "said"),
    [
        ({"model": ""}, "model: String should have at least 1 character"),
        ({"url": "x"}, "url: Unexpected keyword argument"),
        ({"records": "javascript:x"}, "javascript:x"),
    ],
)
def test_wrong_facts_are_refused_in_one_line(changes: dict[str, str], said: str, study: Path) -> None:
    (study / FACTS_NAME).write_text(json.dumps(FACTS | changes))
    with pytest.raises(ValueError, match=r"board\.yaml") as error:
        read_board([study])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_study_needs_an_unlearned_model(records: Records, tmp_path: Path) -> None:
    records.references["original"].write(tmp_path / "original.json")
    with pytest.raises(ValueError, match="has reference models only"):
        read_board([tmp_path])


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
    assert set(read_board([tmp_path])[0].records.results) == {"atwu", "wga", "npo"}


@pytest.mark.parametrize("file", sorted(RESULTS.glob(f"*/{FACTS_NAME}")), ids=lambda file: file.parent.name)
def test_recorded_studies_state_their_facts(file: Path) -> None:
    facts = validated(read_yaml(file), type_adapter(StudyFacts), what=str(file))
    assert (RESULTS.parents[1] / facts.records) == file.parent
