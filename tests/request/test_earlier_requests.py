"""Several requests on one model: each starts from the model of the last one, respects earlier ones and asks for them again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from atwu.benchmarks.people_rows import people
from atwu.data.row_parsing import write_rows
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import CHAINED
from atwu.evaluation.facts.fact_table import FactCount, FactTable
from atwu.exporting.export_run import export
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request import unlearn as run
from atwu.request import verdict
from atwu.request.earlier_requests import (
    ReadRequest,
    asked_again,
    earlier_requests,
    read_rows,
    recheck_outcome,
    recheck_requests,
    total_cost,
)
from atwu.request.regression_check import CAME_BACK, STILL_GONE, STILL_KNOWN, Baseline, RegressionCheck
from atwu.request.request_folder import EarlierRequest, RequestFolder, RowsUsed
from atwu.request.unlearn import unlearn
from atwu.request.unlearning_request import UnlearnResult
from atwu.request.verdict import facts_forgotten
from atwu.training.row_sets import check_no_overlap
from tests.request.measurements import few_measurements
from tests.request.tables import KNOWN, answer, table

pytestmark = pytest.mark.night  # whole runs of several requests

ITALY = Example.from_qa("What is the capital of Italy?", "The capital of Italy is Rome.")
"""Subject of one of the shipped general questions."""
STEPS = {"learning_rate": 1e-3, "max_steps": 12, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
BASELINE = Baseline(FactCount(2, 2, 40, 30), FactCount(2, 0, 40, 0), True)

Apply = Callable[..., UnlearnResult]


def past(rows: Sequence[Example], *, system: str | None = None, increase: float | None = 0.1) -> ReadRequest:
    used = RowsUsed.of("mine.jsonl", rows)
    return ReadRequest(EarlierRequest("run", used, (), system, BASELINE, increase), rows)


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four people who want to be forgotten, and Italy with the first of them."""
    folder, rows = tmp_path_factory.mktemp("rows"), people("tiny").forget
    files = [folder / f"{number}.jsonl" for number in range(1, 5)]
    for number, file in enumerate(files):
        write_rows(file, [*rows[6 * number : 6 * number + 6], *([ITALY] if number == 0 else [])])
    return files


@pytest.fixture(scope="module")
def apply(rows: Path, environment: dict[str, str], requests: list[Path]) -> Any:
    """Applies one of the four to a model."""

    def applied(
        model: Path, number: int, output: Path, *, retain: str = str(rows / "retain.jsonl"), **options: Any
    ) -> UnlearnResult:
        return unlearn(
            model,
            str(requests[number - 1]),
            output=output,
            retain=retain,
            holdout=str(rows / "holdout.jsonl"),
            options=STEPS | options,
            max_retain_increase=1.0,
            request_note=f"mail {number}",
            say=lambda line: None,
        )

    with few_measurements(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATWU_CACHE", environment["ATWU_CACHE"])
        patch.setattr(verdict, "POINTS", 1.0)  # a model that knows only people has little else to keep
        yield applied


@pytest.fixture(scope="module")
def first(apply: Apply, target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that the first request left."""
    output = tmp_path_factory.mktemp("requests") / "first"
    apply(target, 1, output)
    return output


def test_a_second_request_on_an_unlearned_model_asks_for_the_first_again_also_after_a_kill(
    apply: Apply, first: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert earlier_requests(str(target)) == ()
    second = apply(first, 2, tmp_path / "second")
    assert second.verdict.outcome == "forgotten"
    (check,) = second.verdict.earlier
    (recorded,) = earlier_requests(str(first))
    assert (check.number, check.baseline) == (1, recorded.baseline)
    assert recorded.baseline.after.answers_stating < recorded.baseline.before.answers_stating
    said = " ".join(second.summary().split())
    assert f"request 1 {check.summary}" in said
    assert "Over all 2 requests on this model the retain loss rose by" in said

    with monkeypatch.context() as patch:
        patch.setattr(run, "decide", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            apply(first, 2, tmp_path / "killed")
    again = apply(first, 2, tmp_path / "killed")
    assert again.verdict.earlier == second.verdict.earlier
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("second", "killed"))
    assert all(one[name].equal(other[name]) for name in one)


@pytest.mark.night
def test_four_requests_in_a_row(apply: Apply, first: Path, tmp_path: Path) -> None:
    """The third generates its own retain set, and the fourth asks for all three again."""
    own = tmp_path / "first"  # other tests need the shared one
    shutil.copytree(first, own)
    apply(own, 2, tmp_path / "second")
    apply(tmp_path / "second", 3, tmp_path / "third", retain="auto")
    kept = [json.loads(line) for line in (tmp_path / "third" / "request" / "retain.jsonl").open()]
    assert len(kept) >= 20
    assert not any("Italy" in row["question"] for row in kept)
    shutil.rmtree(own)  # a model of the chain is not needed any more
    fourth = apply(tmp_path / "third", 4, tmp_path / "fourth")
    assert [check.number for check in fourth.verdict.earlier] == [1, 2, 3]
    for check, earlier in zip(fourth.verdict.earlier, earlier_requests(str(tmp_path / "third")), strict=True):
        assert check.baseline == earlier.baseline
        assert check.summary in " ".join(fourth.summary().split())
    assert all(len(line) <= 80 for line in fourth.summary().splitlines() if "atwu " not in line)


def test_a_retain_set_that_would_undo_an_earlier_request_is_rejected(apply: Apply, first: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "keep.jsonl", [*people("tiny").retain, people("tiny").forget[2]])
    with pytest.raises(ValueError, match=r"row 73 .*'Can you name"):
        apply(first, 2, tmp_path / "second", retain=str(tmp_path / "keep.jsonl"))
    assert not (tmp_path / "second").exists()


def test_rows_that_are_gone_or_changed_are_not_asked_for_and_named(
    apply: Apply, first: Path, requests: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recorded,) = earlier_requests(str(first))
    assert [row.question for row in read_rows(recorded).rows][-1] == ITALY.question
    kept = requests[0].read_text()
    try:
        requests[0].write_text(kept.splitlines(keepends=True)[0])
        assert read_rows(recorded).missing == f"{requests[0]} has other rows than then"
        requests[0].unlink()
        second = apply(first, 2, tmp_path / "second")
    finally:
        requests[0].write_text(kept)
    assert second.verdict.earlier == ()
    assert any(item.startswith("request 1, an earlier one: its rows") for item in second.verdict.not_tested)
    assert len(RequestFolder(tmp_path / "second").request().earlier) == 1


def test_the_baseline_has_no_chained_questions_which_are_not_asked_again() -> None:
    chained = [answer("forget", fact, CHAINED, stated=True) for fact in range(5)]
    assert asked_again(FactTable((*KNOWN.records, *chained))) == KNOWN.select(set="forget")


def test_what_all_requests_cost() -> None:
    assert total_cost([], 0.1) == ()
    (sentence,) = total_cost([past([ITALY], increase=0.1), past([ITALY], increase=0.02)], 0.03)
    assert "all 3 requests" in sentence
    assert "0.150 nats/token" in sentence
    assert total_cost([past([ITALY], increase=None)], 0.1) == ()
    assert total_cost([past([ITALY], increase=0.1)], float("nan")) == ()


def test_retain_rows_may_share_answers_but_not_questions_with_earlier_forget_rows() -> None:
    gone = [Example.from_qa("Where was she born?", "In Mirrow."), Example((), "A plain text.")]
    fine = [Example.from_qa("Where did it rain?", "In Mirrow."), Example((), "Another text.")]
    check_no_overlap(fine, gone, source="file", why="was in the forget set")
    for row in (Example.from_qa("where was SHE born", "Nobody knows."), Example((), "a plain  text")):
        with pytest.raises(ValueError, match=r"file: row 1 was in the forget set \(.*\); leave such rows out"):
            check_no_overlap([row], gone, source="file", why="was in the forget set")
        with pytest.raises(ValueError, match=r"file: row 2 was in the forget set \(.*\), like 2 more rows; leave"):
            check_no_overlap([fine[0], row, row, row], gone, source="file", why="was in the forget set")


def test_a_model_whose_rows_were_trained_in_forms_is_exported_with_the_rows_as_given(
    apply: Apply, target: Path, tmp_path: Path
) -> None:
    apply(target, 1, tmp_path / "run", forms="continuation,blank")
    exported = export(tmp_path / "run", "safetensors", output=tmp_path / "out", device="cpu")
    assert exported.good
    trained = json.loads((tmp_path / "run" / "run.json").read_text())["data"]["forget"]["rows"]
    assert trained > json.loads((exported.model / "export.json").read_text())["rows"]["forget"]["rows"] == 7


def test_earlier_requests_are_asked_with_their_original_settings(target: Path) -> None:
    model, tokenizer = open_model(str(target), ModelLoadArgs(), device="cpu")
    rows = people("tiny").forget[:2]
    earlier = [past(rows, system=system) for system in (None, "Answer in one word.", None)]
    first, brief, third = recheck_requests(model, tokenizer, earlier)
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
