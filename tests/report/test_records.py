"""Reading studies and runs: damaged ones, and a study in progress."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from atwu._manifest import write_manifest
from atwu.report.read_records import read_records
from atwu.report.report_page import render_report_page
from atwu.report.report_records import Records
from atwu.report.table_writers import to_latex, to_markdown
from tests.commands import run_here
from tests.damage import damage
from tests.report.conftest import Page, write_study

pytestmark = pytest.mark.usefixtures("no_figures")

Build = Callable[..., Records]


def save(records: Records, folder: Path, **about: Any) -> Path:
    """Write the folder of a study; `about` replaces keys of `study.json`."""
    study = {**records.study, "name": folder.name, "title": f"title of {folder.name}", **about}
    write_study(dataclasses.replace(records, study=study), folder)
    if "runs" in about:  # which write_study lists from the finished ones
        (folder / "study.json").write_text(json.dumps(study), encoding="utf-8")
    return folder


def unlike(records: Records, label: str = "atwu") -> Records:
    """The same runs, of which those of one label have another result."""
    runs = [
        dataclasses.replace(run, result=dataclasses.replace(run.result, fingerprint=f"{run.seed:032x}"))
        if run.label == label
        else run
        for run in records.runs
    ]
    return dataclasses.replace(records, runs=tuple(runs))


def seeds(records: Records) -> Mapping[str, list[int | None]]:
    return {label: [run.seed for run in records.of(label)] for label in records.labels}


def test_several_studies_are_left_to_a_board(build_records: Build, tmp_path: Path) -> None:
    first = save(build_records(["atwu", "wga"], seeds=[0, 1]), tmp_path / "headline")
    second = save(build_records(["rmu"]), tmp_path / "scorer-state")
    with pytest.raises(ValueError, match=r"scorer-state is a second study; .*--output FOLDER"):
        read_records([first, second])
    more = read_records([first, second / "runs" / "rmu-s0"])
    assert seeds(more) == {"atwu": [0, 1], "wga": [0, 1], "rmu": [0]}


def test_studies_and_runs_that_do_not_fit_together_are_rejected(build_records: Build, tmp_path: Path) -> None:
    records = build_records(["atwu"])
    first, second = save(records, tmp_path / "a"), save(unlike(records), tmp_path / "b")
    for path in (first / "runs" / "atwu-s0", first):
        with pytest.raises(ValueError, match=r"'atwu'.*seed 0"):
            read_records([path, second / "runs" / "atwu-s0"])
    original = dataclasses.replace(records.references["original"], fingerprint="0" * 32)
    other = save(dataclasses.replace(records, references={"original": original}), tmp_path / "c")
    with pytest.raises(ValueError, match="original model"):
        read_records([first, other / "references" / "original"])
    assert read_records(str(first)).runs == read_records([first]).runs


@pytest.mark.parametrize("name", ["eval.json", "run.json"])
def test_errors_name_damaged_files(name: str, build_records: Build, tmp_path: Path) -> None:
    run = save(build_records(["atwu"]), tmp_path / "study") / "runs" / "atwu-s0"
    write_manifest(run)
    (run / "model.safetensors").touch()
    read_records([run])
    damage(run / name, "flipped")
    with pytest.raises(ValueError, match=rf"{run} .*{name}"):
        read_records([run])


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("study.json", "Restore it, or run the same atwu study run again"),
        ("runs/atwu-s0/run.json", "Restore the file"),
    ],
)
@pytest.mark.parametrize("content", ['{"step": 1, "runs', "{}"])
def test_errors_of_damaged_files_say_what_to_do(
    name: str, remedy: str, content: str, build_records: Build, tmp_path: Path
) -> None:
    study = save(build_records(["atwu"]), tmp_path / "study")
    (study / name).write_text(content)
    with pytest.raises(ValueError, match=rf"{study / name}.*\. {remedy}"):
        read_records([study])


def test_a_study_in_progress_is_read(build_records: Build, tmp_path: Path) -> None:
    planned = [f"{label}-s{seed}" for label in ("atwu", "wga", "npo") for seed in (0, 1)]
    going = save(build_records(), tmp_path / "going", runs=planned, failed={"npo-s1": "diverged"})
    for name in ("wga-s1", "npo-s0"):
        (going / "runs" / name / "eval.json").unlink()
    shutil.rmtree(going / "runs" / "npo-s1")
    shutil.rmtree(going / "references" / "retain-only")
    read = read_records([going])
    assert seeds(read) == {"atwu": [0, 1], "wga": [0]}
    assert list(read.references) == ["original"]
    assert read.study["progress"] == "3 of 6 runs finished"
    for text in (to_markdown(read), to_latex(read), Page(render_report_page(read)).visible):
        assert "3 of 6 runs finished. Left out: npo-s1 (diverged)." in " ".join(text.split())
    shutil.rmtree(going / "references")
    assert "3 of 6 runs finished" in Page(render_report_page(read_records([going]))).visible


def test_a_failed_run_is_not_in_progress_and_one_finished_run_is_needed(build_records: Build, tmp_path: Path) -> None:
    records = build_records(["atwu"])
    folder = save(records, tmp_path / "a", runs=["atwu-s0", "atwu-s1", "atwu-s2"], failed={"atwu-s2": "diverged"})
    read = read_records([folder])
    assert "progress" not in read.study
    assert "runs finished" not in to_markdown(read)
    shutil.rmtree(folder / "runs")
    with pytest.raises(FileNotFoundError, match=r"\b3 runs"):
        read_records([folder])


def test_records_have_a_notebook_representation(records):
    frame = records.to_pandas()
    value = frame[(frame.label == "atwu") & (frame["set"] == "forget") & (frame.metric == "extraction_strength")]
    assert value.value.item() == records.results["atwu"].sets["forget"]["extraction_strength"].value
    assert "<th>atwu</th>" in records._repr_html_()


def test_differences_of_a_study_use_the_common_seeds(records, study_folder):
    for other in ("atwu", "original"):
        found = records.differences("wga", other)["forget", "extraction_strength"]
        one, base = (
            [result.sets["forget"]["extraction_strength"].value for result in pair]
            for pair in records.paired("wga", other)
        )
        assert len(one) == len(base) == 2
        assert found.value == pytest.approx((sum(one) - sum(base)) / 2)
    assert found.value == pytest.approx(-records.differences("original", "wga")["forget", "extraction_strength"].value)
    done = run_here("compare", study_folder, "--baseline", "original", "--metrics", "forget:extraction_strength")
    assert f"{found.value:+.3f} [" in done.output
