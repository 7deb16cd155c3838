"""`atwu unlearn` with only a model and rows: it forgets, prints a verdict, and stops if there is nothing to forget."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from atwu import unlearn as unlearn_here
from atwu._manifest import write_manifest
from atwu.benchmarks.people_rows import people
from atwu.data.fact import fact_parts
from atwu.data.row_parsing import fingerprint, write_rows
from atwu.data.schema import Example
from atwu.evaluation.result import row_id
from atwu.request import neighbours, preparation
from atwu.request.request_folder import RequestFolder
from atwu.request.row_facts import RowFact, in_brackets, with_facts
from atwu.request.verdict import nothing_to_forget
from atwu.training.run_folder import RunFolder
from tests.commands import IN_PROCESSES, Started, run_command, run_here
from tests.request.measurements import few_measurements

ROWS = people("tiny").forget[:6]


@pytest.fixture
def given(rows: Path) -> tuple[str, ...]:
    """Rows of a request, as options."""
    return tuple(
        word for name in ("forget", "retain", "holdout") for word in (f"--{name}", str(rows / f"{name}.jsonl"))
    )


def test_rows_are_forgotten_with_automatic_settings(
    target: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a single subject, whose intervals are over rows; their file is replaced meanwhile, which changes nothing."""
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(neighbours, "KNOWN_FORMS", ())  # a model of two layers knows rows as written only
    monkeypatch.setattr(neighbours, "is_told_apart", lambda _: True)
    shutil.copy(rows / "forget.jsonl", tmp_path / "forget.jsonl")
    said: list[str] = []

    def say(line: str) -> None:
        if not said:
            write_rows(tmp_path / "forget.jsonl", ROWS[:2])
        said.append(line)

    with few_measurements():
        outcome = unlearn_here(
            str(target),
            str(tmp_path / "forget.jsonl"),
            output=tmp_path / "out",
            retain=str(rows / "retain.jsonl"),
            holdout=str(rows / "holdout.jsonl"),
            options={"use_cpu": True, "disable_tqdm": True},
            max_retain_increase=1,  # general questions mean nothing to a model that only ever saw people
            say=say,
        )
    assert any("learning_rate=0.0003" in line for line in said)
    assert any(line.endswith("; training ends") for line in said)
    # What a model of two layers says in other forms is chance, as is how much of it is gibberish.
    assert outcome.verdict.outcome in ("forgotten", "partly forgotten", "forgotten, at too high a cost")
    assert not nothing_to_forget(outcome.before)
    assert outcome.after is not None
    saved, counts = outcome.verdict.states[0], {state.name: state for state in outcome.verdict.states}
    assert saved.before.facts_stated == saved.before.facts == len(ROWS)
    assert saved.after.answers_stating < saved.before.answers_stating
    assert {"bfloat16", "4 bits"} <= set(counts)
    assert counts["4 bits"].after.facts == len(ROWS)
    history = json.loads((tmp_path / "out" / "request" / "history.json").read_text())
    assert {len(each["retain_losses"]) for each in history["eval_steps"]} == {3}  # questions, text, retain set
    first, last = history["eval_steps"][0], history["eval_steps"][-1]
    assert first["known_rows"] >= len(ROWS)
    assert last["known_rows"] < first["known_rows"]
    # What a model of invented people knows is among the given retain rows.
    files, kept = RequestFolder(tmp_path / "out"), people("tiny").retain[:16]
    measured = files.neighbours(kept)
    assert {row.question for row in measured} & {row.question for row in kept}
    assert all(row.forget_spans for row in measured)
    stored = files.rows("neighbours") or ()
    assert not {row.question for row in stored} & {row.question for row in kept}  # given rows are recorded by place
    assert files.neighbours(()) == tuple(stored)  # the retain file is gone
    assert outcome.before.select(set="neighbours").count().facts == len(measured)
    assert [sample.set for sample in outcome.verdict.samples][:3] == ["forget"] * 3
    assert all(sample.answer and sample.question for sample in outcome.verdict.samples)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert RequestFolder(tmp_path / "out").request().forget.fingerprint == fingerprint(ROWS)
    assert record["data"]["forget"]["rows"] >= 4 * len(ROWS)  # in several forms
    assert outcome.run is not None
    assert outcome.run.steps == record["steps"]


def test_rows_that_the_original_model_does_not_know_need_no_training(
    tmp_path: Path, given: tuple[str, ...], unlearn: Callable[..., str]
) -> None:
    write_rows(tmp_path / "unknown.jsonl", people("tiny").holdout[12:18])
    said = unlearn(tmp_path / "out", *given, "--forget", tmp_path / "unknown.jsonl", "--strict", code=3)
    assert "VERDICT: NOTHING TO FORGET" in said
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def unchanged(
    tmp_path_factory: pytest.TempPathFactory, rows: Path, unlearn: Callable[..., str]
) -> tuple[Path, tuple[str, ...], str]:
    """The folder of a run with given settings that changes nothing, its options, and what it printed."""
    folder = tmp_path_factory.mktemp("unchanged")
    sets = [word for name in ("forget", "retain", "holdout") for word in (f"--{name}", str(rows / f"{name}.jsonl"))]
    given = (*sets, "--steps", "2", "--learning-rate", "1e-7", "--request-note", "A. Person", "--strict")
    return folder / "out", given, unlearn(folder / "out", *given, code=3)


def test_given_settings_are_used_and_a_run_without_effect_is_reported(
    unchanged: tuple[Path, tuple[str, ...], str],
) -> None:
    output, _, said = unchanged
    assert "VERDICT: NOTHING CHANGED" in said
    assert "step 2/2  still known " in said  # the last step, between two evaluation steps
    record = json.loads((output / "run.json").read_text())
    assert record["recipe"]["given"] == []
    assert (record["steps"], record["config"]["learning_rate"]) == (2, 1e-7)
    assert record["config"]["lr_scheduler_type"] == "linear"


def test_the_facts_of_all_rows_are_recorded_and_some_are_shown_before_training(
    unchanged: tuple[Path, tuple[str, ...], str],
) -> None:
    output, _, said = unchanged
    rows = with_facts(ROWS, RequestFolder(output).request().facts)
    assert all(row.forget_spans for row in rows)
    assert [fact_parts(row) for row in rows] == [fact_parts(row) for row in ROWS]  # which are labelled
    assert f"3 of {len(ROWS)} rows" in said
    assert all(in_brackets(row)[:60] in said for row in rows[:3])


def test_files_of_a_request_contain_hashes_and_no_rows(unchanged: tuple[Path, tuple[str, ...], str]) -> None:
    folder = RequestFolder(unchanged[0])
    request = folder.request()
    assert request.forget.ids == tuple(map(row_id, ROWS))
    assert request.request_note == "A. Person"
    assert "--request-note 'A. Person'" in request.command
    before = folder.answers("before").select(set="forget").count()
    assert before.facts_stated == before.facts == len(ROWS)
    kept = "".join(file.read_text() for file in folder.path.iterdir() if file.name != "request.json")
    assert not any(text in kept for row in ROWS for text in (row.answer, row.question, str(row.subject)))


def test_a_request_killed_before_its_verdict_gets_it_from_the_same_command(
    target: Path,
    unchanged: tuple[Path, tuple[str, ...], str],
    unlearn: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output, given, _ = unchanged
    under_way = output.with_name("out.incomplete")
    verdict = (output / "verdict.json").read_bytes()
    weights = (output / "model.safetensors").stat()
    # As a process leaves it that is killed between the end of its training and its verdict.
    (output / "verdict.json").unlink()
    (output / "request" / "answers_after.json").unlink()
    folder = RunFolder(output.with_name("killed"))
    with folder.alone():
        folder.clear()
        shutil.move(output / "request", folder.request)
        shutil.move(output, folder.final)
        write_manifest(folder.final)
    folder.work.rename(under_way)
    command = ["unlearn", "--model", target, "--output", output, *given]
    other = run_here(*command, "--steps", "3")
    assert "options.max_steps" in str(other.exception)
    marked: list[tuple[Example, ...]] = []
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "mark_facts", None)  # the facts are those of the record
        patch.setattr(preparation, "with_facts", lambda *both: marked.append(with_facts(*both)) or marked[-1])
        said = unlearn(output, *given, code=3)
    assert "resuming the request prepared at" in said
    assert [RowFact.of(row) for row in marked[0]] == [*RequestFolder(output).request().facts]
    assert "VERDICT" in said
    assert (output / "verdict.json").read_bytes() == verdict
    assert (output / "model.safetensors").stat() == weights
    assert (output / "request" / "answers_after.json").is_file()
    assert not under_way.exists()
    assert "finished run" in str(run_here(*command).exception)


@pytest.mark.night  # in the daily run: training/test_processes.py
def test_of_two_processes_only_the_first_measures(
    target: Path, tmp_path: Path, environment: dict[str, str], given: tuple[str, ...]
) -> None:
    """Together they do what one does, step by step; the second one never evaluates."""
    more = ("--seed", "3", "--max-retain-increase", "1", "--use-cpu", "--save-strategy", "no")
    command = [
        "unlearn",
        "--model",
        target,
        "--output",
        tmp_path / "two",
        *given,
        *more,
        "--training-args",
        '{"ddp_backend": "gloo"}',
    ]
    done = run_command(
        [*command, "--batch-size", "4"],
        code=IN_PROCESSES.format(number=2, code=ENTRY),
        env=environment | {"MEASURED": str(tmp_path / "measured")},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("VERDICT: FORGOTTEN") == 1
    assert (tmp_path / "measured").read_text().split() == ["0", "0"]
    verdict = json.loads((tmp_path / "two" / "verdict.json").read_text())
    assert verdict["outcome"].startswith("forgotten")  # the limit on damage is wide
    assert (tmp_path / "two" / "request" / "history.json").is_file()


ENTRY = """
import os
from atwu.cli.app import run
from atwu.request import measurement as measure

whole = measure.evaluate

def counted(*given, **named):
    with open(os.environ["MEASURED"], "a") as file:
        file.write(os.environ["RANK"] + " ")
    return whole(*given, **named)

measure.evaluate = counted
run()
"""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--epochs", "0"), "step"),
        (("--learning-rate", "0"), "learning_rate.* 0"),
        (("--max-retain-increase", "-1"), r"\b0\b"),
        (("--lora-r", "4", "--lora-targets", "nothing"), "nothing"),
        (("--save-adapter", "--lora-r", "0"), "save_adapter needs LoRA"),
        (("--training-args", '{"eval_strategy": "epoch"}'), "eval_strategy .*atwu evaluate"),
        (("--method", "atwu", "--scorer-from", "nowhere"), "nowhere"),
        (("--method", "rmu", "--layer", "99"), "layer.*99"),
        (("--holdout", "texts.jsonl"), "question"),  # which cannot be compared with the forget rows
        (("--retain", "people:tiny:full"), "people:tiny:full: row 73 .*5 more"),  # these repeat forget rows
        (("--holdout", "people:tiny:full"), "people:tiny:full: row 73 .*5 more.*--holdout"),
        (("--further-forget", "people:tiny:retain:1"), r"holdout\.jsonl: row 9 is in the forget set"),
    ],
)
def test_impossible_requests_are_rejected_before_the_model_is_measured(
    target: Path,
    tmp_path: Path,
    given: tuple[str, ...],
    more: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("atwu.request.preparation.general_answers", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.jsonl").write_text('{"text": "It rained all day."}\n')
    done = run_here("unlearn", "--model", target, "--output", tmp_path / "out", *given, *more)
    assert re.search(message, f"{done.output}{done.exception}")
    assert done.exit_code
    assert [path.name for path in tmp_path.iterdir()] == ["texts.jsonl"]


def test_a_folder_of_another_program_is_not_touched(target: Path, tmp_path: Path, given: tuple[str, ...]) -> None:
    mine = tmp_path / "out.incomplete"
    mine.mkdir()
    (mine / "letter.txt").write_text("Dear all")
    for more in ((), ("--overwrite",)):
        done = run_here("unlearn", "--model", target, "--output", tmp_path / "out", *given, *more)
        assert re.search(r"out\.incomplete .*output", str(done.exception))
    assert (mine / "letter.txt").read_text() == "Dear all"
    assert [path.name for path in tmp_path.iterdir()] == ["out.incomplete"]


def test_a_request_under_way_is_not_touched(target: Path, tmp_path: Path, given: tuple[str, ...]) -> None:
    """Also before its first checkpoint, when it has nothing to lose yet."""
    folder = RunFolder(tmp_path / "out")
    with folder.alone():
        folder.request.mkdir()
        (folder.request / "request.json").write_text("of the other process")
        done = run_here("unlearn", "--model", target, "--output", tmp_path / "out", *given, "--overwrite")
    assert isinstance(done.exception, FileExistsError)
    assert str(tmp_path / "out") in str(done.exception)
    assert (folder.request / "request.json").read_text() == "of the other process"
    assert [path.name for path in tmp_path.iterdir()] == ["out.incomplete"]


@pytest.mark.night
def test_a_killed_controlled_run_resumes_with_the_same_result(
    target: Path, tmp_path: Path, environment: dict[str, str], given: tuple[str, ...]
) -> None:
    """Killed after its second checkpoint, with a step back behind it: weights and verdict as without the kill."""

    def command(name: str) -> list[object]:
        return ["unlearn", "--model", target, "--output", tmp_path / name, *given, "--save-steps", "5", "--seed", "3"]

    assert run_command(command("whole"), env=environment).returncode == 0
    process = Started(command("killed"), env=environment)
    while not list((tmp_path / "killed.incomplete").glob("checkpoint-10")) and not process.ended():
        time.sleep(0.01)
    assert process.kill().returncode == -signal.SIGKILL
    done = run_command(command("killed"), env=environment)
    assert "resuming the unfinished run at step" in done.stdout + done.stderr
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(one[name].equal(other[name]) for name in one)
    verdicts = [json.loads((tmp_path / name / "verdict.json").read_text()) for name in ("whole", "killed")]
    assert verdicts[0]["criteria"] == verdicts[1]["criteria"]


def test_retain_rows_are_built_from_a_corpus_and_the_models_self_generated_rows(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atwu.request.retain_set.common_questions", lambda kind: ("What is the capital of Peru?",))
    output = tmp_path / "retain.jsonl"
    sets = ("--forget", "people:tiny:forget", "--corpus", "people:tiny:full", "--count", "30")
    done = run_here("rows", "retain", "--model", target, *sets, "--output", output)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    counts = dict(line.rsplit(maxsplit=1) for line in done.output.splitlines() if line[-1:].isdigit())
    assert int(counts["retain rows"]) == len(rows)
    assert int(counts["rows from the corpus, close in topic"]) == 30
    (about,) = (name for name in counts if name.startswith("  left out: they name a subject of the forget set ("))
    assert int(counts[about]) >= 24
    subjects = {row.subject.lower() for row in people("tiny").forget}
    texts = [f"{row['question']} {row['answer']}".lower() for row in rows]
    assert not any(subject in text for text in texts for subject in subjects)
