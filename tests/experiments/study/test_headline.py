"""The headline study at its smallest: methods of every kind, the table, and the page."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import pytest

from atwu.evaluation.result import format_number
from atwu.methods.method_table import METHODS
from atwu.report.run_records import read_records
from tests.commands import run_command

LABELS = ("npo", "atwu")
"""One that needs a reference, one that needs a scorer; scripts/same_numbers.py compares all 24 of two trees."""
REFERENCES = ("original", "retain-only")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, trained_models) -> Path:
    root = tmp_path_factory.mktemp("headline")
    chosen = ("--setting", "tiny", "--processes", 1, "--output", root / "out", *(f"--only={label}" for label in LABELS))
    environment = os.environ | {"ATWU_CACHE": str(trained_models(root / "cache"))}
    done = run_command(["study", "run", "headline", *chosen], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was left out" not in done.stderr
    return root / "out"


@pytest.mark.night
def test_methods_are_run_evaluated_and_in_every_output(folder):
    records = read_records([folder])
    assert records.labels == tuple(label for label in METHODS if label in LABELS)
    assert set(records.references) == set(REFERENCES)
    assert records.references["original"].sets["forget"]["extraction_strength"].value > 0.9
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", page)
    assert len(page) < 5e6
    table = (folder / "table.md").read_text(encoding="utf-8")
    for name in (*LABELS, *REFERENCES):
        assert name in page
        assert name.replace("_", "\\_") in table


@pytest.mark.night
def test_tables_equal_the_measurements_they_came_from(folder):
    results = read_records([folder]).results
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["label"] for row in rows} == {*LABELS, *REFERENCES}
    for row in rows:
        result = results[row["label"]]
        cell = (result.overall if row["set"] == "overall" else result.sets[row["set"]])[row["metric"]]
        assert (float(row["value"]) if row["value"] else None) == pytest.approx(cell.value)
    lines = (folder / "table.md").read_text(encoding="utf-8").splitlines()
    column = next(i for i, head in enumerate(lines[0].split("|")) if "ES\\_Δ" in head)
    for label in LABELS:
        cell = re.compile(rf" {re.escape(label)}( \((destroyed|untouched)\))? ")
        (line,) = (line for line in lines if line.startswith("|") and cell.fullmatch(line.split("|")[1]))
        printed = re.sub(r"[*]|\[.*|±.*", "", line.split("|")[column]).strip()
        assert printed == format_number(results[label].overall["ES_delta"].value, 3)
    plain = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert plain["schema"] == "atwu.report/1"
