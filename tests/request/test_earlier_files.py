"""Files that earlier versions of a request wrote are read with today's names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atwu._renamed import current_names
from atwu.request.goal_evaluations import read_history
from atwu.request.ledger import Ledger
from atwu.request.request_folder import REQUEST_NAME, RequestFolder
from atwu.request.thresholds import parse_thresholds
from atwu.request.verdict import read_request_verdict

LINE = {"rows": "reworded", "measure": "telling words said", "before": 0.9, "after": 0.1, "low": 0.0, "high": 0.2}
ROWS = {"source": "mine.jsonl", "count": 1, "fingerprint": "ab", "ids": ["cd"]}
THRESHOLDS = "thresholds: {reworded.telling_said: at most unseen, unseen.telling_probability: at most 0.1}"
KNOWN = {"rows": "reworded", "measure": "telling_said", "before": 0.9, "after": 0.1, "limit": 0.2}
AGAIN = {"number": 1, "word": "still forgotten", "lines": [{"then": KNOWN, "value": 0.1, "low": None, "high": None}]}
KEY = {
    "model": {"model": "smollm2"},
    "forget": "ab",
    "retain": "auto",
    "unseen": "ef",
    "options": {"max_steps": 3},
    "retain_limit": 0.15,
    "thresholds": "12",
    "about": None,
    "fit": False,
}


def written(path: Path, record: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return path


def test_a_verdict(tmp_path: Path) -> None:
    record = {
        "word": "forgotten",
        "why": "The rows are gone.",
        "lines": [LINE, LINE | {"rows": "unseen", "measure": "telling words p"}],
        "answers": [{"question": "Who?", "expected": "Orla.", "before": "Orla.", "after": "Tavi."}],
        "next": ["atwu chat out"],
        "limits": {"telling_said": 0.2},
        "schema": "atwu.verdict/1",
    }
    written(tmp_path / "verdict.json", record)
    verdict = read_request_verdict(tmp_path)
    assert (verdict.outcome, verdict.reason, verdict.next_steps) == (
        "forgotten",
        "The rows are gone.",
        ("atwu chat out",),
    )
    assert [(line.set, line.metric) for line in verdict.metrics] == [
        ("other_prompts", "key-token recall"),
        ("holdout_rows", "key-token probability"),
    ]
    assert (verdict.metrics[0].after, verdict.metrics[0].limit) == (0.1, None)
    assert verdict.holdout_limits == {"key_token_recall": 0.2}
    assert all(len(line) <= 80 for line in verdict.text().splitlines())


def test_a_ledger(tmp_path: Path) -> None:
    model = {"name": "models/0001", "fingerprint": "34"}
    record = {
        "number": 1,
        "made": "2026-11-22T15:20:00+00:00",
        "finished": "2026-11-22T15:30:00+00:00",
        "about": None,
        "command": "atwu unlearn",
        "key": KEY,
        "rows": ROWS,
        "before": model,
        "model": model,
        "word": "forgotten",
        "why": "Gone.",
        "thresholds": "12",
        "known": [KNOWN],
        "again": [AGAIN],
        "stayed": {"first": 0.5, "now": 0.4},
        "schema": "atwu.ledger/1",
    }
    written(tmp_path / "requests" / "0001.json", record)
    (entry,) = Ledger(tmp_path).entries()
    assert entry.forget_rows.ids == ("cd",)
    assert (entry.baseline[0].set, entry.baseline[0].metric) == ("other_prompts", "key_token_recall")
    assert entry.regression_checks[0].scores[0].baseline == entry.baseline[0]
    assert entry.utility_drift is not None
    assert (entry.utility_drift.original, entry.utility_drift.current) == (0.5, 0.4)
    assert (entry.key["holdout"], entry.key["max_retain_increase"], entry.key["auto_memory"]) == ("ef", 0.15, False)


def test_a_request(tmp_path: Path) -> None:
    record = {
        "made": "2026-11-22T15:20:00+00:00",
        "about": "J. Doe",
        "command": "atwu unlearn",
        "key": KEY,
        "model": "smollm2",
        "forget": ROWS,
        "retain": None,
        "unseen": ROWS,
        "retain_limit": 0.15,
        "system": None,
        "max_length": 512,
        "choices": [{"name": "bf16", "value": True, "reason": "fast"}],
        "thresholds": {"name": "mine.yaml", "sha256": "12", "text": THRESHOLDS},
        "ledger": None,
        "replaces": None,
        "shown": [{"question": "Who?", "expected": "Orla.", "before": "Orla.", "after": ""}],
        "schema": "atwu.request/1",
    }
    written(tmp_path / "out" / "request" / REQUEST_NAME, record)
    written(
        tmp_path / "out" / "request" / "course.json",
        {
            "looks": [{"step": 0, "probability": 0.9, "guessed": 1.0, "losses": [2.0], "learning_rate": 1e-4}],
            "kept": 0,
            "steps_back": 1,
            "rise": 0.1,
        },
    )
    folder = RequestFolder(tmp_path / "out")
    request = folder.request()
    assert (request.prepared_at, request.max_retain_increase) == ("2026-11-22T15:20:00+00:00", 0.15)
    assert request.holdout.fingerprint == "ab"
    assert request.sample_answers[0].expected == "Orla."
    history = read_history(folder.history)
    assert (history.kept_step, history.rollbacks, history.retain_loss_increase) == (0, 1, 0.1)
    assert (history.eval_steps[0].accuracy, history.eval_steps[0].retain_losses) == (1.0, (2.0,))
    limits = parse_thresholds(request.thresholds.text, name="mine.yaml", any_version=True).thresholds
    assert [each.name for each in limits] == ["other_prompts.key_token_recall", "holdout.key_token_probability"]


def test_names_are_replaced_as_whole_words() -> None:
    assert current_names("unseen.telling_said@int4: at most unseen") == "holdout.key_token_recall@int4: at most holdout"
    assert current_names("unseenly, my_telling_said") == "unseenly, my_telling_said"
