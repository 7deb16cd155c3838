"""`make theory`, run once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from theory.__main__ import main
from theory.claims import Claim

pytest.importorskip("matplotlib")

pytestmark = pytest.mark.night  # other tests cover the single steps

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theory") / "out"
    command = [sys.executable, "-m", "theory", "--output", str(folder)]
    environment = os.environ | {"COLUMNS": "200"}
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    return result, folder


def test_all_claims_agree(done):
    result, folder = done
    assert result.returncode == 0, result.stderr
    assert "UNEXPECTEDLY" not in result.stdout
    record = json.loads((folder / "theory.json").read_text())
    assert record["schema"] == "atwu.theory/1"
    assert all(claim["expected"] == claim["observed"] for claim in record["claims"])
    assert sum(claim["expected"] for claim in record["claims"]) == 13
    assert len(record["claims"]) == 21
    for claim in record["claims"]:
        assert claim["statement"] in result.stdout


def test_tables_equal_the_record(done):
    result, folder = done
    record = json.loads((folder / "theory.json").read_text())
    assert record["oracle_budget"] == 0.5
    for row in record["tokens"]:
        line = next(line for line in result.stdout.splitlines() if row["token"] in line)
        assert f"{row['conflict']:.5f}" in line
        assert ("private" in line) == row["private"]
    assert "as (wrong)" in result.stdout
    for row in record["needed"]:
        assert f"{row['satga_plus']:.1f}" in result.stdout


def test_figure_is_written(done):
    _, folder = done
    assert (folder / "theory.pdf").read_bytes().startswith(b"%PDF")
    svg = (folder / "theory.svg").read_text()
    assert svg.lstrip().startswith("<?xml")
    assert len(svg) < 300_000


def test_existing_result_is_not_overwritten(done, capsys):
    _, folder = done
    with pytest.raises(SystemExit):
        main(["--output", str(folder)])
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("expected", "observed", "start"),
    [
        (True, True, "holds: x (y)"),
        (False, False, "fails, as expected: x (y)"),
        (True, False, "FAILS, UNEXPECTEDLY: x (y)"),
        (False, True, "HOLDS, UNEXPECTEDLY: x (y)"),
    ],
)
def test_verdicts(expected, observed, start):
    claim = Claim("x", expected, observed, "y")
    assert claim.verdict == start
    assert claim.agrees == (expected == observed)
