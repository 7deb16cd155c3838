"""Several requests on one model: each continues from the last one's model, respects earlier ones and measures them again."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load_file

from atwu.benchmarks.people.people_rows import people
from atwu.data.row_parsing import write_rows
from atwu.data.schema import Example
from atwu.evaluation.facts.fact_table import FactCount, FactTable
from atwu.exporting.export_run import export
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request import collect_evidence as gather
from atwu.request import sequential as further
from atwu.request import unlearn as run
from atwu.request import verdict
from atwu.request.finished_request import FinishedRequest, MissingInputError
from atwu.request.ledger import (
    CAME_BACK,
    STILL_GONE,
    STILL_KNOWN,
    Baseline,
    Ledger,
    RegressionCheck,
    recheck_outcome,
)
from atwu.request.sequential import SequentialResult, recheck_requests, unlearn_in_ledger
from atwu.request.verdict import facts_forgotten
from atwu.training.row_conflicts import check_no_overlap
from tests.commands import run_here
from tests.request.measurements import few_measurements
from tests.request.tables import KNOWN, table

ITALY = Example.from_qa("What is the capital of Italy?", "The capital of Italy is Rome.")
"""Subject of one of the shipped general questions."""
STEPS = {"learning_rate": 1e-3, "max_steps": 12, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}

Apply = Callable[..., SequentialResult]


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four people who want to be forgotten, and Italy with the first of them."""
    folder, rows = tmp_path_factory.mktemp("rows"), people("tiny").forget
    files = [folder / f"{number}.jsonl" for number in range(1, 5)]
    for number, file in enumerate(files):
        write_rows(file, [*rows[6 * number : 6 * number + 6], *([ITALY] if number == 0 else [])])
    return files


@pytest.fixture(scope="module")
def apply(target: Path, rows: Path, environment: dict[str, str], requests: list[Path]) -> Any:
    """Applies one of the four to a ledger."""

    def applied(
        ledger: Path, number: int, *, model: str | None = None, retain: str = str(rows / "retain.jsonl"), **options: Any
    ) -> SequentialResult:
        return unlearn_in_ledger(
            ledger,
            str(requests[number - 1]),
            model=str(target) if number == 1 else model,
            retain=retain,
            holdout=str(rows / "holdout.jsonl"),
            options=STEPS | options,
            max_retain_increase=1.0,
            request_note=f"mail {number}",
        )

    with few_measurements(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATWU_CACHE", environment["ATWU_CACHE"])
        patch.setattr(verdict, "POINTS", 1.0)  # a model that knows only people has little else to keep
        yield applied


@pytest.fixture(scope="module")
def started(apply: Apply, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with the first request."""
    ledger = tmp_path_factory.mktemp("ledger") / "started"
    apply(ledger, 1)
    return ledger


def plain(ledger: Path) -> list[dict[str, Any]]:
    """Contents of a ledger, without times and paths."""
    found = [dataclasses.asdict(entry) for entry in Ledger(ledger).entries()]
    for entry in found:
        for name in ("prepared_at", "finished_at", "command", "key"):
            del entry[name]
    return found


def test_a_second_request_continues_from_the_first_also_after_a_kill(
    apply: Apply, started: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = (Path(shutil.copytree(started, tmp_path / name)) for name in ("whole", "killed"))
    second = apply(whole, 2)
    assert second.entry.outcome == "forgotten"
    assert [each.number for each in second.entry.regression_checks] == [1]
    assert second.entry.model_before == Ledger(whole).entries()[0].model_after
    first = Ledger(whole).entries()[0].utility_drift
    assert first is not None
    assert second.entry.utility_drift is not None
    assert second.entry.utility_drift.original == first.original
    assert second.entry.utility_drift.current != first.current
    said = " ".join(second.summary().split())
    assert f"general questions: {first.original:.3f} under it" in said

    # The same request, killed twice: before its verdict, and before it is in the ledger.
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for module, name in ((run, "decide"), (further, "recheck_requests")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, stop)
            with pytest.raises(KeyboardInterrupt):
                apply(killed, 2)
        assert len(Ledger(killed).entries()) == 1
    with pytest.raises(FileExistsError, match="finished run"):
        apply(killed, 3)
    again = apply(killed, 2)
    assert again.outcome is not None
    assert again.outcome.run is not None
    assert plain(killed) == plain(whole)
    one, other = (load_file(ledger / "models" / "0002" / "model.safetensors") for ledger in (whole, killed))
    assert all(one[name].equal(other[name]) for name in one)

    assert apply(killed, 2).outcome is None  # given once more, it is done
    assert len(plain(killed)) == 2


@pytest.mark.night
def test_four_requests_in_a_row(apply: Apply, started: Path, tmp_path: Path) -> None:
    """The third generates its own retain set, and the fourth measures all three again."""
    whole = Path(shutil.copytree(started, tmp_path / "whole"))
    apply(whole, 2)
    apply(whole, 3, retain="auto")
    kept = [json.loads(line) for line in (whole / "models" / "0003" / "request" / "retain.jsonl").open()]
    assert len(kept) >= 20
    assert not any("Italy" in row["question"] for row in kept)
    fourth = apply(whole, 4)
    assert [each.number for each in fourth.entry.regression_checks] == [1, 2, 3]
    for each, earlier in zip(fourth.entry.regression_checks, Ledger(whole).entries(), strict=False):
        assert each.baseline == earlier.baseline
        assert each.summary in " ".join(fourth.summary().split())
    assert all(len(line) <= 80 for line in fourth.summary().splitlines() if "atwu " not in line)
    entries = Ledger(whole).entries()
    for one_entry, next_entry in itertools.pairwise(entries):
        assert next_entry.model_before == one_entry.model_after
    kept_rows = sorted(file.stem for file in (whole / "rows").iterdir())
    assert kept_rows == sorted(entry.forget_rows.fingerprint for entry in entries)
    moved = shutil.move(whole, tmp_path / "moved")
    assert Ledger(moved).model(Ledger(moved).entries()[-1].model_after) == str(tmp_path / "moved" / "models" / "0004")


def test_options_that_would_undo_an_earlier_request_are_rejected(
    apply: Apply, started: Path, tmp_path: Path, requests: list[Path], target: Path
) -> None:
    before = plain(started)
    write_rows(tmp_path / "keep.jsonl", [*people("tiny").retain, people("tiny").forget[2]])
    with pytest.raises(ValueError, match=r"row 73 .*'Can you name"):
        apply(started, 2, retain=str(tmp_path / "keep.jsonl"))
    with pytest.raises(ValueError, match="last request"):
        apply(started, 2, model=str(target))
    assert plain(started) == before
    assert len(list((started / "rows").iterdir())) == 1


def test_a_changed_ledger_is_rejected(apply: Apply, started: Path, tmp_path: Path) -> None:
    ledger = Path(shutil.copytree(started, tmp_path / "ledger"))
    for name in ("general.jsonl", "models", "rows"):
        (ledger / name).rename(tmp_path / name)
        with pytest.raises(FileNotFoundError, match=rf"{name}.* is missing; restore it"):
            apply(ledger, 2)
        (tmp_path / name).rename(ledger / name)
    (rows,) = (ledger / "rows").iterdir()
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ValueError, match=r"request 1 .*rows"):
        apply(ledger, 2)
    (ledger / "requests" / "0002.json").write_text("{")
    with pytest.raises(
        ValueError, match=r"0002\.json, line 1, .*invalid JSON.* Restore it, or create it again with atwu"
    ):
        apply(ledger, 2)
    (ledger / "requests" / "0001.json").rename(ledger / "requests" / "0002.json")
    with pytest.raises(ValueError, match=r"0002\.json"):
        apply(ledger, 2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("Dear all")
    with pytest.raises(FileExistsError, match="ledger"):
        apply(tmp_path / "other", 1)


def test_the_first_request_needs_a_model_and_leaves_nothing_if_it_fails(tmp_path: Path, requests: list[Path]) -> None:
    done = run_here("unlearn", "--ledger", tmp_path / "new", "--forget", requests[0])
    assert "ledger" in str(done.exception)
    done = run_here("unlearn", "--forget", requests[0])
    assert re.search("--model.*--output", str(done.exception))
    for model, forget in ((tmp_path / "no-model", requests[0]), (tmp_path, tmp_path / "no-rows.jsonl")):
        assert run_here("unlearn", "--ledger", tmp_path / "a" / "new", "--model", model, "--forget", forget).exit_code
    assert list(tmp_path.iterdir()) == []


def test_retain_rows_may_share_answers_but_not_questions_with_earlier_forget_rows() -> None:
    gone = [Example.from_qa("Where was she born?", "In Mirrow."), Example((), "A plain text.")]
    fine = [Example.from_qa("Where did it rain?", "In Mirrow."), Example((), "Another text.")]
    check_no_overlap(fine, gone, source="file", why="was in the forget set")
    for row in (Example.from_qa("where was SHE born", "Nobody knows."), Example((), "a plain  text")):
        with pytest.raises(ValueError, match=r"file: row 1 was in the forget set \(.*\); leave such rows out"):
            check_no_overlap([row], gone, source="file", why="was in the forget set")
        with pytest.raises(ValueError, match=r"file: row 2 was in the forget set \(.*\), like 2 more rows; leave"):
            check_no_overlap([fine[0], row, row, row], gone, source="file", why="was in the forget set")


def test_a_model_finds_its_ledger_and_a_missing_one_is_an_error(started: Path, tmp_path: Path) -> None:
    found = gather._ledger(FinishedRequest(started / "models" / "0001"))
    assert found is not None
    assert (found.request_number, found.requests_total) == (1, 1)
    alone = shutil.copytree(started / "models" / "0001", tmp_path / "alone")
    with pytest.raises(FileNotFoundError, match="requests"):
        gather._ledger(FinishedRequest(alone))
    # Its rows are read from the present folder of the ledger.
    moved = shutil.copytree(started, tmp_path / "moved")
    assert FinishedRequest(moved / "models" / "0001").forget_rows
    shutil.rmtree(moved / "rows")
    with pytest.raises(MissingInputError, match="forget rows"):
        assert FinishedRequest(moved / "models" / "0001").forget_rows


def test_a_model_whose_rows_were_trained_in_forms_is_exported_with_the_rows_as_given(
    apply: Apply, rows: Path, tmp_path: Path
) -> None:
    apply(tmp_path / "ledger", 1, forms="continuation,blank")
    run = shutil.move(tmp_path / "ledger", tmp_path / "moved") / "models" / "0001"
    found = export(run, "safetensors", output=tmp_path / "out", device="cpu")
    assert found.good
    trained = json.loads((run / "run.json").read_text())["data"]["forget"]["rows"]
    assert trained > json.loads((found.model / "export.json").read_text())["rows"]["forget"]["rows"] == 7


def test_models_of_a_ledger_reached_through_a_link_are_named_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "real" / "models" / "0001").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "other").mkdir()
    for folder, inside in itertools.product(("real", "link"), repeat=2):
        assert Ledger(tmp_path / folder).name_of(tmp_path / inside / "models" / "0001") == "models/0001"
        assert Ledger(tmp_path / folder).name_of(tmp_path / "other") == str(tmp_path / "other")


def test_earlier_requests_are_asked_with_their_original_settings(target: Path) -> None:
    model, tokenizer = open_model(str(target), ModelLoadArgs(), device="cpu")
    rows = people("tiny").forget[:2]
    baseline = Baseline(FactCount(2, 2, 40, 30), FactCount(2, 0, 40, 0), True)
    entries: list[Any] = [
        SimpleNamespace(number=number, baseline=baseline, facts=(), key={"options": {"system": system}})
        for number, system in ((1, None), (2, "Answer in one word."), (3, None))
    ]
    first, brief, third = recheck_requests(model, tokenizer, [(entry, rows) for entry in entries])
    assert first.now == third.now
    assert first.outcome == CAME_BACK  # the model never forgot them
    assert (brief.number, brief.now.answers) == (2, first.now.answers)
    assert brief.now.answers_stating != first.now.answers_stating


@pytest.mark.parametrize(
    ("after", "now", "word"),
    [
        (table(0), table(4), STILL_GONE),
        (table(0), table(5), CAME_BACK),
        (table(0), table(0, own=1), CAME_BACK),
        (table(50), table(54), STILL_KNOWN),  # 2 points more
        (table(50), table(55), CAME_BACK),
        (table(50), table(3), STILL_GONE),
    ],
)
def test_outcomes_of_an_earlier_request(after: FactTable, now: FactTable, word: str) -> None:
    before, after, now = (answers.select(set="forget") for answers in (KNOWN, after, now))
    baseline = Baseline(before.count(), after.count(), facts_forgotten(after))
    assert recheck_outcome(baseline, now) == word
    summary = RegressionCheck(1, word, baseline, now.count()).summary
    assert summary.startswith(f"{word}: {now.count().answers_stating} of 200 answers state a fact (160 of 200 before")
