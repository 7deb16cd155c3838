"""`atwu evidence` on a real run: the model in all states, missing inputs, and errors."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from atwu.benchmarks.people_rows import people
from atwu.data.row_parsing import write_rows
from atwu.modeling.load import model_fingerprint
from atwu.request.evidence import Evidence
from atwu.request.finished_request import FinishedRequest, MissingInputError
from atwu.request.request_folder import RequestFolder
from tests.commands import run_command
from tests.request.declared import read_evidence

LABELLED = people("tiny").forget[:6]
ROWS = [dataclasses.replace(row, forget_spans=None) for row in LABELLED]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, target: Path, rows: Path, environment: dict[str, str]) -> Path:
    """Holds `run`, a finished request, with its rows; training labels their words."""
    folder = tmp_path_factory.mktemp("evidence")
    write_rows(folder / "mine.jsonl", ROWS)
    words = [row.answer[start:stop] for row in LABELLED for start, stop in row.forget_spans or ()]
    (folder / "words.txt").write_text("\n".join(words))
    sets = ("--forget", "mine.jsonl", "--retain", rows / "retain.jsonl", "--holdout", rows / "holdout.jsonl")
    given = ("--steps", "2", "--learning-rate", "1e-3", "--request-note", "J. Doe asks")
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
    states = {state.name: state for state in found.states}
    assert next(iter(states)) == "as saved"
    assert {"bfloat16", "4 bits", "8 bits", "best of 8 samples", "pushed back"} <= set(states)
    assert {f"after {steps} steps on half of them" for steps in (5, 10, 20)} <= set(states)
    assert states["after 20 steps on unrelated rows"].after.facts == len(ROWS)
    half = states["after 5 steps on half of them"]
    assert half.after.facts < len(ROWS)
    assert half.unknown is not None
    assert half.before.facts == half.after.facts
    assert f"{states['as saved'].after.facts_stated} of {len(ROWS)} facts" in said.stdout
    assert "never known" in said.stdout
    assert len(found.leaks) >= states["as saved"].after.answers_stating
    assert found.verdict.criteria[0].name == "answers that state a fact"
    record = json.loads((folder / "run" / "run.json").read_text())
    assert record["data"]["forget"]["fingerprint"] != found.request.forget.fingerprint  # with labels
    assert found.model_before.fingerprint == record["original_model"]["fingerprint"]
    assert found.model_after.fingerprint == record["result_fingerprint"]
    assert set(found.model_after.files) == {"model.safetensors", "scorer.safetensors"}
    assert found.request.request_note == "J. Doe asks"
    assert len(found.request.forget.ids) == found.request.rows_measured == len(ROWS)
    assert found.command.startswith("atwu unlearn --model target --output run --forget mine.jsonl")
    written = "".join((folder / "run" / "request" / f"evidence.{ending}").read_text() for ending in ("html", "json"))
    leaking = {leak.fact for leak in found.leaks}
    assert not any(row.question in written for place, row in enumerate(ROWS) if place not in leaking)
    evidence(folder, environment, "--show-rows", "--output", "shown.html")
    assert ROWS[5].answer in (folder / "shown.html").read_text()


def test_without_the_forget_rows_there_is_no_evidence(
    folder: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    rows = (folder / "mine.jsonl").rename(tmp_path / "mine.jsonl")
    try:
        done = evidence(folder, environment, "--output", "gone.html", code=1)
    finally:
        shutil.move(rows, folder / "mine.jsonl")
    assert re.search("forget rows are no longer available", done.stderr)
    assert not (folder / "gone.html").exists()


def test_the_original_model_must_have_the_recorded_weights(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run in fewer bits has trained on another, whose hash is in its record."""
    run = shutil.copytree(folder / "run", tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    record["original_model"]["fingerprint"] = "0" * 32
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"damaged \(run\.json"):
        FinishedRequest(run)
    (run / "manifest.json").unlink()
    model, _ = FinishedRequest(run).open_original()
    request = RequestFolder(run).request()
    assert model_fingerprint(model) == request.fingerprint
    changed = json.loads((run / "request" / "request.json").read_text()) | {"fingerprint": "0" * 32}
    (run / "request" / "request.json").write_text(json.dumps(changed))
    with pytest.raises(MissingInputError, match="model"):
        _ = FinishedRequest(run).open_original()


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
