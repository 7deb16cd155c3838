"""`atwu probe` with a tiny untrained model."""

from __future__ import annotations

import json
import re

import pytest

from atwu.cli.tokens import parse_layers
from atwu.evaluation.linear_probe import ProbeResult
from atwu.evaluation.metrics.score_auroc import SampleAuroc
from atwu.report.table_writers import probe_table
from tests.micro_models import write_micro


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and a file of rows, the last one without annotation."""
    folder = tmp_path_factory.mktemp("probe")
    rows = []
    for index, name in enumerate(["Orla Venn", "Tavi Brook", "Mira Holt", "Joss Ardley"] * 3):
        answer = f"{name} was born in {1900 + index} in Kelbury."
        rows.append({"question": f"When was {name} born?", "answer": answer, "subject": name})
        rows[-1]["forget_spans"] = [[answer.index("19"), answer.index("19") + 4]]
    rows.append({"question": "Who keeps bees?", "answer": "Zada Finch."})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_micro(folder / "model", (f"{row['question']} {row['answer']}" for row in rows))
    return folder


@pytest.fixture(scope="module")
def run(atwu, folder):
    def probe(*arguments, code=0):
        command = ["--model", folder / "model", "--data", folder / "rows.jsonl", "--device", "cpu", *arguments]
        return atwu("probe", *command, code=code)

    return probe


def test_the_printed_table_is_also_written(run, tmp_path):
    output = tmp_path / "probe.json"
    printed = run("--layers", "0,-1", "--position", "own", "--position", "both", "--folds", "3", "-o", output)
    record = json.loads(output.read_text())
    assert record["schema"] == "atwu.probe/1"
    assert len(record["fingerprint"]) == 32
    assert record["data"]["rows"] == 13
    assert record["settings"] == {"folds": 3, "seed": 0, "l2": 0.01, "max_length": 512, "system": None}
    shown = [(result["layer"], result["position"]) for result in record["results"]]
    assert shown == [(0, "own"), (0, "both"), (2, "own"), (2, "both")]
    for result in record["results"]:
        assert set(result["auroc"]) == {"mean", "std", "n", "skipped"}
        assert result["rows"] == result["auroc"]["n"] == 12
        assert f"{result['auroc']['mean']:.3f} ± {result['auroc']['std']:.3f}" in printed
    assert "How to read it" in printed
    assert re.search(r"\b1 of 13 rows .*forget_spans", printed)
    assert [path.name for path in tmp_path.iterdir()] == ["probe.json"]
    assert "--overwrite" in run("--output", output, code=1)
    run("--layers", "last", "--output", output, "--overwrite")
    assert {result["layer"] for result in json.loads(output.read_text())["results"]} == {2}


def test_equal_seeds_give_equal_results(run, tmp_path):
    results = []
    for name in ("one.json", "two.json"):
        run("--layers", "1", "--output", tmp_path / name, "--seed", "4")
        results.append(json.loads((tmp_path / name).read_text())["results"])
    assert results[0] == results[1]


def test_the_best_printed_value_is_bold():
    means = (0.8, 0.91234, 0.91199, 0.9)
    results = [
        ProbeResult(layer, "own", SampleAuroc(mean, 0.1, 3, 0, (mean,) * 3), None, 3, 30)
        for layer, mean in enumerate(means)
    ]
    assert [row.style for row in probe_table(results, title="x").rows] == [None, "bold", "bold", None]


def test_layers_on_the_command_line():
    assert parse_layers("all") is None
    assert parse_layers("last") == [-1]
    assert parse_layers("0, 2,4") == [0, 2, 4]
    with pytest.raises(ValueError, match=r"--layers .*all, last.*'top'"):
        parse_layers("top")


def test_wrong_input_is_rejected_before_the_model_is_read(run, tmp_path):
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"question": "Who keeps bees?", "answer": "Zada Finch."}\n')
    for arguments, code, message in (
        (("--data", bare), 1, "none of the 1 rows has forget_spans"),
        (("--position", "next"), 2, "--position must be one of own, pred, both"),
        (("--output", tmp_path / "nowhere" / "probe.json"), 1, "does not exist"),
    ):
        assert message in run(*arguments, code=code)
