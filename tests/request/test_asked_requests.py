"""Requests that give a name or a file of questions in place of rows: the model is asked once, and what it says is forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from atwu import unlearn as unlearn_here
from atwu.benchmarks.people_rows import people
from atwu.benchmarks.sources import load_rows
from atwu.data.schema import Example, Message
from atwu.errors import UsageError
from atwu.evaluation.facts.askings import AS_WRITTEN, CHAINED, chained_askings
from atwu.evaluation.facts.fact_table import FactTable
from atwu.methods.weightings.related_names import names_by_kind
from atwu.request import asked_rows
from atwu.request.asked_rows import AskedSource, asked_source, is_question_file
from atwu.request.asking import subject_templates
from atwu.request.asking.ask import AskRequest
from atwu.request.asking.ask_result import AskResult
from atwu.request.asking.asked_facts import AskedFact
from atwu.request.asking.subject_templates import CHAIN, TRAINED_CHAIN
from atwu.request.finished_request import FinishedRequest
from atwu.request.request_folder import RequestFolder
from atwu.request.verdict import QUESTIONS_KEPT, state_counts
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource
from tests.commands import run_here
from tests.request.tables import answer

pytestmark = pytest.mark.night  # whole runs of several requests

ROWS = people("tiny").forget[:6]
NAME = str(ROWS[0].subject)
QUICK = ("--steps", "2", "--learning-rate", "1e-7")


@pytest.fixture
def sets(rows: Path) -> tuple[str, ...]:
    return tuple(word for name in ("retain", "holdout") for word in (f"--{name}", str(rows / f"{name}.jsonl")))


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions of which the model answers some alike in every asking."""
    file = tmp_path_factory.mktemp("questions") / "questions.txt"
    file.write_text("\n".join(row.question for row in ROWS), encoding="utf-8")
    return file


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions about a person that the tiny model was trained on, in two wordings."""
    file = tmp_path / "templates.yaml"
    lines = [["Can you name an award won by {name}?", "Can you name an award won by {name}, please?"]]
    file.write_text(yaml.safe_dump({"person": {"words": ["person"], "names": ["people"], "questions": lines}}))
    monkeypatch.setattr(subject_templates, "SHIPPED", file)


# What is asked


def lines(file: Path, *texts: str) -> Path:
    file.write_text("\n".join(texts), encoding="utf-8")
    return file


def test_a_text_file_is_one_of_questions_if_every_line_ends_with_a_question_mark(tmp_path: Path) -> None:
    asked = lines(tmp_path / "a.txt", "What is the capital of Varn?", "", "Wer gründete Sted？")
    assert is_question_file(asked)
    assert is_question_file(str(asked))
    assert not is_question_file(lines(tmp_path / "b.txt", "What is it?", "It is a lamp."))
    assert not is_question_file(
        lines(tmp_path / "empty.txt", " ", "")
    )  # read as a document, which says that it is empty
    assert not is_question_file(lines(tmp_path / "c.jsonl", '{"question": "Who?", "answer": "Me."}'))
    assert not is_question_file(tmp_path / "missing.txt")
    assert not is_question_file([Example((), "text")])


@pytest.mark.parametrize(
    ("forget", "about", "kind", "message"),
    [
        (None, None, None, "nothing to forget"),
        ("rows.jsonl", "Egypt", None, "exclude each other"),
        ("rows.jsonl", None, "place", "kind has no effect"),
        (None, " , ", None, "about is empty"),
    ],
)
def test_a_request_gives_either_rows_or_names(forget: Any, about: Any, kind: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        asked_source(forget, about=about, kind=kind)


def test_several_names_stand_between_commas_or_in_a_list() -> None:
    expected = AskedSource(names=("Egypt", "Cairo"))
    assert asked_source(None, about="Egypt, Cairo , Egypt", kind=None) == expected
    assert asked_source(None, about=["Egypt", "Cairo"], kind=None) == expected
    assert asked_source(None, about=["Washington, D.C."], kind=None) == AskedSource(names=("Washington, D.C.",))


def test_the_file_of_questions_identifies_a_request_by_its_content(tmp_path: Path) -> None:
    one, other = lines(tmp_path / "1.txt", "Who?"), lines(tmp_path / "2.txt", "Who?")
    assert AskedSource(questions=one).key == AskedSource(questions=other).key
    other.write_text("Where?", encoding="utf-8")
    assert AskedSource(questions=one).key != AskedSource(questions=other).key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to forget; give --about NAME or --forget ROWS"),
        (("--about", "Egypt", "--forget", "rows.jsonl"), "--about and --forget exclude each other"),
        (("--forget", "rows.jsonl", "--kind", "place"), "--kind has no effect without --about"),
    ],
)
def test_the_command_takes_either_rows_or_names(arguments: tuple[str, ...], message: str) -> None:
    done = run_here("unlearn", "--model", "no-such-model", "--output", "out", *arguments)
    assert message in f"{done.output}{done.exception}"
    assert isinstance(done.exception, UsageError)


# Questions that are only measured

CAPITAL = Example.from_qa("What is the capital of Varn?", "It is Lumo.", forget_spans=((6, 10),), subject="Varn")
RIVER = Example.from_qa("Which river flows through Varn?", "The Oder.", forget_spans=((4, 8),), subject="Varn")
BACK = Example.from_qa("In which country is Lumo?", "Lumo is in Varn.", forget_spans=((11, 15),), subject="Lumo")


def test_a_question_about_an_answer_asks_for_the_fact_with_this_answer() -> None:
    (asking,) = chained_askings([RIVER, CAPITAL], [BACK])
    assert (asking.fact, asking.name, asking.parts) == (1, CHAINED, ("Varn",))
    assert asking.shown == "In which country is Lumo?"
    assert chained_askings([RIVER], [BACK]) == []


def test_questions_that_are_not_trained_on_have_a_line_of_their_own() -> None:
    asked = (AS_WRITTEN, "paraphrase", CHAINED)
    before = FactTable(tuple(answer("forget", 0, way, stated=True) for way in asked))
    after = FactTable(tuple(answer("forget", 0, way, stated=way == "paraphrase") for way in asked))
    saved, kept = state_counts(before, after)
    assert (saved.before.answers_stating, saved.after.answers_stating, saved.after.answers) == (3, 1, 3)
    assert kept.name == QUESTIONS_KEPT
    assert (kept.before.answers_stating, kept.after.answers_stating, kept.after.answers) == (2, 1, 2)


def test_a_person_is_compared_with_other_persons_and_a_place_with_all_names(tmp_path: Path) -> None:
    def like(kind: str) -> tuple[str, ...]:
        files = RequestFolder(tmp_path / kind)
        fact = AskedFact(CAPITAL, "Lumo", 8, 8, "template", subject="Varn")
        files.write_asked(AskResult("model", "Varn", (fact,), names=("Varn",), kinds=(kind,)), {})
        return asked_rows._recorded(AskedSource(names=("Varn",)), files, files).like

    assert like("place") == ()
    assert set(names_by_kind()["scientists"]) <= set(like("person"))
    assert not set(names_by_kind()["countries"]) & set(like("person"))


def test_of_the_questions_about_answers_half_are_kept_from_training(tmp_path: Path) -> None:
    files = RequestFolder(tmp_path)
    about = replace(BACK, messages=(Message("user", "What is Lumo?"),))
    facts = (
        AskedFact(CAPITAL, "Lumo", 8, 8, "template", subject="Varn"),
        AskedFact(BACK, "Varn", 2, 4, CHAIN, subject="Lumo", leads_back=2),
        AskedFact(about, "Varn", 2, 4, TRAINED_CHAIN, subject="Lumo", leads_back=2),
    )
    files.write_asked(AskResult("model", "Varn", facts, names=("Varn",), kinds=("place",)), {})
    recorded = asked_rows._recorded(AskedSource(names=("Varn",)), files, files)
    assert [row.question for row in recorded.forget.rows] == [CAPITAL.question]
    assert [row.question for row in recorded.chained] == [BACK.question]
    assert [row.question for row in recorded.trained_chained] == ["What is Lumo?"]


def test_rows_that_a_model_said_do_not_outlive_their_request(tmp_path: Path) -> None:
    files = RequestFolder(tmp_path)
    for keep_asked in (True, False):
        files.path.mkdir(exist_ok=True)
        files.rows_file.write_text("{}\n")
        (files.path / "asked.json").write_text('{"key": {"asked": 1}}')
        (files.path / "history.json").write_text("{}")
        files.clear(keep_asked=keep_asked)
        assert files.rows_file.exists() is keep_asked
        assert not files.history.exists()


def test_another_unfinished_request_is_refused_before_a_model_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_rows, "_ask", None)
    monkeypatch.setattr(asked_rows.RunFolder, "has_results", lambda _: True)
    source, config = ModelSource(model="smollm2"), UnlearnConfig(use_cpu=True)
    with pytest.raises(FileExistsError, match="unfinished request about something else"):
        asked_rows.ask_for_rows(
            AskedSource(names=("Egypt",)), source, config, tmp_path / "out", overwrite=False, say=lambda line: None
        )


def test_a_name_with_a_comma_is_refused() -> None:
    with pytest.raises(ValueError, match="commas separate names"):
        AskRequest(about=["Martin Luther King, Jr."])


# From end to end


def test_questions_are_answered_once_and_a_killed_run_reads_the_rows_from_its_folder(
    questions: Path,
    sets: tuple[str, ...],
    tmp_path: Path,
    unlearn: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "out"

    def killed(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("atwu.request.unlearn.train_run", killed)
        unlearn(output, *sets, *QUICK, "--forget", questions, code=1)
    under_way = RequestFolder(output.with_name("out.incomplete"))
    rows = under_way.rows_file.read_bytes()
    assert rows
    with monkeypatch.context() as patch:
        patch.setattr(asked_rows, "_ask", None)  # which would be asking again
        said = unlearn(output, *sets, *QUICK, "--forget", questions)
    assert "forget rows: those that" in said
    assert "VERDICT" in said
    folder = RequestFolder(output)
    assert folder.rows_file.read_bytes() == rows
    record = json.loads(rows.splitlines()[0])
    assert record["source"] == "questions"
    assert record["question"] in [row.question for row in ROWS]
    request = folder.request()
    assert request.key["inputs"]["asked"] == AskedSource(questions=questions).key
    assert f"--forget {questions}" in request.command
    moved = output.rename(tmp_path / "moved")
    assert [row.question for row in FinishedRequest(moved).forget_rows] == [
        row.question for row in load_rows(moved / "request" / "rows.jsonl").rows
    ]


@pytest.mark.usefixtures("templates")
def test_what_a_model_says_about_a_name_is_shown_and_unlearned(
    target: Path, sets: tuple[str, ...], tmp_path: Path, unlearn: Callable[..., str]
) -> None:
    output = tmp_path / "out"
    said = unlearn(output, *sets, *QUICK, "--about", NAME, "--kind", "person")
    assert "what the model says" in said
    assert f"knows 1 fact of {NAME}" in said
    folder = RequestFolder(output)
    (row,) = folder.rows("rows") or ()
    assert row.question == f"Can you name an award won by {NAME}?"
    assert row.paraphrases == (f"Can you name an award won by {NAME}, please?",)
    assert f"--about '{NAME}' --kind person" in folder.request().command
    assert folder.asked_kinds() == ("person",)
    trained = json.loads((output / "run.json").read_text())["data"]["forget"]
    assert trained["source"].endswith("rows.jsonl")
    again = run_here(
        "unlearn", "--model", target, "--output", output, *sets, *QUICK, "--about", NAME, "--kind", "person"
    )
    assert "finished run" in str(again.exception)


@pytest.mark.usefixtures("templates")
def test_of_a_name_that_is_not_known_nothing_is_trained(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setenv("ATWU_CACHE", environment["ATWU_CACHE"])
    # A model that only ever saw a few people gives their facts to every name.
    monkeypatch.setattr("atwu.request.asking.asked_facts.KNOWN_SHARE", 1.1)
    with pytest.raises(ValueError, match=r"says nothing stable about Orla Venn \(\d+ of \d+ answers agree\)\. Nothing"):
        unlearn_here(
            str(target),
            about="Orla Venn",
            kind="person",
            output=tmp_path / "out",
            options={"use_cpu": True},
            say=lambda line: None,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["templates.yaml"]


def test_a_misspelt_kind_is_refused_before_the_model_is_opened(tmp_path: Path) -> None:
    done = run_here(
        *("unlearn", "--model", "no-such-model", "--output", tmp_path / "out", "--about", "Egypt", "--kind", "palce")
    )
    assert "no questions for the kind 'palce'" in f"{done.output}{done.exception}"
