"""examples/a_method_of_your_own.py as a plugin: its hyperparameter works everywhere."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.commands import run_command
from tests.micro_models import write_micro

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "a_method_of_your_own.py"
DRIVER = """
import json, os, sys
from atwu.cli.app import run
sys.path.insert(0, os.getcwd())
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["atwu", *arguments]
    try:
        run()
    except SystemExit as end:
        print("exit", end.code)
from atwu.experiments.search import first_points, search_space
print("search", search_space("hinge", learning_rate=(1e-5, 1e-4))["tau"].high, first_points("hinge", learning_rate=1e-5))
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Return the output of several commands run in one process, and their folder."""
    folder = tmp_path_factory.mktemp("own")
    (folder / EXAMPLE.name).write_text(EXAMPLE.read_text())
    info = folder / "hinge-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hinge\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[atwu.methods]\nabsent = missing_methods:register\nhinge = a_method_of_your_own:register\n"
    )
    write_micro(folder / "target")
    (folder / "hinge.yaml").write_text("method: hinge\ntau: 2.5\n")
    common = ["--model", "target", "--forget", "people:tiny:forget:6", "--retain", "people:tiny:retain:6"]
    common += ["--max-steps", "1"]
    commands = [
        ["methods", "hinge"],
        ["unlearn", *common, "--config", "hinge.yaml", "--output", "run"],
        ["unlearn", *common, "--method", "wga", "--tau", "2.5", "--output", "refused"],
        ["evaluate", "-m", "run", *common[2:4], "--metrics", "scores", "-o", "flag.json"],
        ["tokens", "-m", "run", "-d", "people:tiny:forget", "--score", "later", "--rows", "1", "--html", "flag.html"],
    ]
    surroundings = os.environ | {"ATWU_CACHE": str(folder / "cache"), "COLUMNS": "100"}
    finished = run_command([json.dumps(commands)], code=DRIVER, env=surroundings, cwd=folder)
    assert finished.returncode == 0, finished.stderr
    return finished, folder


def test_it_has_forty_lines():
    assert len(EXAMPLE.read_text().splitlines()) <= 40


def test_methods_command_describes_it(done):
    printed = " ".join(done[0].stdout.split())
    assert "Hinge (hinge) your paper" in printed
    assert "--tau τ 3 1 to 6" in printed
    assert "w max(0, log p + τ), mean over tokens w t / n" in printed


def test_its_hyperparameter_is_in_the_record_and_the_model_card(done):
    record = json.loads((done[1] / "run" / "run.json").read_text())
    assert record["recipe"]["values"] == {"forget_weight": 1.0, "retain_weight": 1.0, "tau": 2.5}
    assert record["config"]["tau"] == 2.5
    assert "tau 2.5" in (done[1] / "run" / "README.md").read_text()


def test_search_uses_its_range(done):
    assert (
        "search 6.0 [{'learning_rate': 1e-05, 'forget_weight': 1.0, 'retain_weight': 1.0, 'tau': 3.0}]"
        in done[0].stdout
    )


def test_another_package_that_fails_is_only_a_warning(done):
    assert re.search("absent = missing_methods:register .*No module named", done[0].stderr)


def test_its_weights_have_an_auroc_and_a_heat_map(done):
    measured = json.loads((done[1] / "flag.json").read_text())
    values = measured["rows"]["forget"]["metrics"]
    assert {"auroc_later", "auroc_saturation"} <= {*values}
    assert len({*values["auroc_later"]}) > 4  # names have different positions in the rows
    assert "later" in (done[1] / "flag.html").read_text()


def test_other_methods_reject_its_hyperparameter(done):
    assert re.search("'tau'.*forget_weight, retain_weight, beta", " ".join(done[0].stderr.split()))
    assert not (done[1] / "refused").exists()
