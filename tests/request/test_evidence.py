"""`atwu evidence` on a real run: thresholds, measurements made now, unavailable measurements, and errors."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from atwu.request.evidence_session import EvidenceSession, MissingInputError
from safetensors.torch import load_file, save_file

from atwu.benchmarks.people.people_rows import people
from atwu.data.row_parsing import write_rows
from atwu.modeling.fingerprint import model_fingerprint
from atwu.request.evidence import Evidence
from atwu.request.request_folder import RequestFolder
from tests.commands import run_command
from tests.request.declared import read_evidence

LABELLED = people("tiny").forget[:6]
ROWS = [dataclasses.replace(row, forget_spans=None) for row in LABELLED]
THRESHOLDS = """
thresholds:
  forget.key_token_recall: at most 0.5
  other_prompts.key_token_recall: at most holdout
  forget.extraction_strength@int4: at most 0.9
  general.probability: falls at most 90 %
attacks: [quantization]
settings: {max_new_tokens: 12}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, target: Path, rows: Path, environment: dict[str, str]) -> Path:
    """Holds `run`, a finished request, with its rows and thresholds; training labels their words."""
    folder = tmp_path_factory.mktemp("evidence")
    write_rows(folder / "mine.jsonl", ROWS)
    words = [row.answer[start:stop] for row in LABELLED for start, stop in row.forget_spans or ()]
    (folder / "words.txt").write_text("\n".join(words))
    (folder / "limits.yaml").write_text(THRESHOLDS)
    sets = ("--forget", "mine.jsonl", "--retain", rows / "retain.jsonl", "--holdout", rows / "holdout.jsonl")
    given = ("--steps", "2", "--learning-rate", "1e-3", "--thresholds", "limits.yaml", "--request", "J. Doe asks")
    command = ["unlearn", "--model", target, *sets, "--output", "run", *given, "--forget-words", "words.txt"]
    done = run_command(command, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def evidence(folder: Path, environment: dict[str, str], *more: object, run: str = "run", code: int = 0) -> Any:
    """Output of the command."""
    done = run_command(["evidence", run, *more], env=environment, cwd=folder)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def read(folder: Path, run: str = "run") -> Evidence:
    return read_evidence(folder / run / "request" / "evidence.json")


def test_the_evidence_of_a_request_is_one_page(folder: Path, environment: dict[str, str]) -> None:
    said = evidence(folder, environment)
    found = read(folder)
    bar = found.thresholds
    assert bar.text == THRESHOLDS
    assert bar.set_before_training
    assert "Set before training" in said.stdout
    assert [each.name for each in bar.results] == [
        *(
            "forget.key_token_recall",
            "other_prompts.key_token_recall",
            "forget.extraction_strength@int4",
            "general.probability",
        )
    ]
    assert all(each.passed is not None and each.rows and each.low is not None for each in bar.results)
    record = json.loads((folder / "run" / "run.json").read_text())
    assert record["data"]["forget"]["fingerprint"] != found.request.forget.fingerprint  # with labels
    assert found.model_before.fingerprint == record["original_model"]["fingerprint"]
    assert found.model_after.fingerprint == record["result_fingerprint"]
    assert set(found.model_after.files) == {"model.safetensors", "scorer.safetensors"}
    assert found.request.about == "J. Doe asks"
    assert len(found.request.forget.ids) == found.request.rows_measured == len(ROWS)
    assert {each.name: each.tried for each in found.attacks} | {"other prompts": True, "quantization": True} == {
        each.name: each.name in ("other prompts", "quantization") for each in found.attacks
    }
    untried = {each.name: each.not_tried_because for each in found.attacks if not each.tried}
    assert untried["relearning"] == "not requested by the thresholds"
    assert untried["membership"] == "needs holdout rows"
    assert "Not tried: membership" in " ".join(found.limitations)
    assert found.command.startswith("atwu unlearn --model target --output run --forget mine.jsonl")
    for side in ("before", "after"):  # with the settings of the thresholds, and not those of the verdict
        again = json.loads((folder / "run" / "request" / f"{side}.again.json").read_text())
        assert again["settings"]["max_new_tokens"] == 12
        assert again["settings"]["metrics"] == ["memorization", "rouge", "key_tokens", "forms", "fluency"]
    # Measured once: what came of it is kept, and neither file holds a row.
    assert "measuring" in said.stderr
    assert "measuring" not in evidence(folder, environment, "--overwrite").stderr
    written = "".join((folder / "run" / "request" / f"evidence.{ending}").read_text() for ending in ("html", "json"))
    assert not any(row.answer in written or row.question in written for row in ROWS)
    evidence(folder, environment, "--show-rows", "--output", "shown.html")
    assert ROWS[5].answer in (folder / "shown.html").read_text()


def test_thresholds_set_after_training_are_marked(folder: Path, environment: dict[str, str]) -> None:
    (folder / "later.yaml").write_text("thresholds: {forget.key_token_recall: at most 0.0}")
    said = evidence(folder, environment, "--thresholds", "later.yaml", "--output", "later.html", "--strict", code=3)
    assert "NOT the thresholds that were set before training" in said.stdout
    assert "not the thresholds that were set before training" in (folder / "later.html").read_text()
    bar = read_evidence(folder / "later.json").thresholds
    assert not bar.set_before_training
    assert "forget.key_token_recall: at most 0.5 before, at most 0 now" in bar.statement
    assert "other_prompts.key_token_recall: at most holdout before, no limit now" in bar.statement


def test_unavailable_measurements_are_reported_with_the_reason(
    folder: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    (folder / "more.yaml").write_text(
        "thresholds: {forget.leak_per_sample: at most 10, forget.key_token_recall: at most 1}"
    )
    (folder / "other.yaml").write_text(
        "thresholds: {forget.key_token_recall: at most 1}\nsettings: {max_new_tokens: 3}"
    )
    rows = (folder / "mine.jsonl").rename(tmp_path / "mine.jsonl")
    try:
        other = evidence(folder, environment, "--thresholds", "other.yaml", "--output", "no.html", code=1)
        said = evidence(folder, environment, "--thresholds", "more.yaml", "--output", "gone.html", "--strict", code=3)
    finally:
        shutil.move(rows, folder / "mine.jsonl")
    assert "forget rows" in other.stderr
    assert re.search(r"forget\.leak_per_sample: .*forget rows", said.stdout)
    first, second = read_evidence(folder / "gone.json").thresholds.results
    assert first.passed is None
    assert second.passed


def test_the_original_model_must_have_the_recorded_weights(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run in fewer bits has trained on another, whose hash is in its record."""
    run = shutil.copytree(folder / "run", tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    record["original_model"]["fingerprint"] = "0" * 32
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"damaged \(run\.json"):
        EvidenceSession(run)
    (run / "manifest.json").unlink()
    model, _ = EvidenceSession(run).start
    assert model_fingerprint(model) == RequestFolder(run).result("before").fingerprint
    before = json.loads((run / "request" / "before.json").read_text()) | {"fingerprint": "0" * 32}
    (run / "request" / "before.json").write_text(json.dumps(before))
    with pytest.raises(MissingInputError, match="model"):
        _ = EvidenceSession(run).start


def test_invalid_evidence_commands_are_rejected(folder: Path, environment: dict[str, str], target: Path) -> None:
    shutil.copytree(folder / "run", folder / "changed")
    (folder / "changed" / "manifest.json").unlink()  # or that would say it
    weights = load_file(folder / "changed" / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, folder / "changed" / "model.safetensors", metadata={"format": "pt"})
    (folder / "killed.incomplete").mkdir()
    shutil.copytree(folder / "run", folder / "unasked")
    (folder / "listed").mkdir()
    (folder / "listed" / "run.json").write_text("[]")
    shutil.rmtree(folder / "unasked" / "request")
    for run, message in (
        ("changed", "changed"),
        ("killed", "killed.*verdict"),
        ("unasked", r"request\.json"),
        ("listed", r"run\.json must hold a JSON object, got list"),
        (str(target), "atwu finetune"),
        ("nowhere", "nowhere "),
    ):
        done = evidence(folder, environment, "--output", "no.html", run=run, code=1)
        assert re.search(message, done.stderr)
        assert "Traceback" not in done.stderr
    assert re.search("error: .*RUN", run_command(["evidence"], env=environment).stderr)
    assert not (folder / "no.html").exists()


def test_the_shipped_thresholds_can_be_printed(environment: dict[str, str], tmp_path: Path) -> None:
    from atwu.request.thresholds import read_thresholds

    (tmp_path / "mine.yaml").write_text(run_command(["evidence", "--print-thresholds"], env=environment).stdout)
    assert read_thresholds(tmp_path / "mine.yaml").thresholds == read_thresholds(None).thresholds
