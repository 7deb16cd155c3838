"""The verdict on a served model: the table of the folder, and no verdict where the server does not answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from atwu.errors import AtwuError, UsageError
from atwu.evaluation.backends import EMPTY_REPLY, TransformersGenerator
from atwu.evaluation.generations import Decoding, Generation, Prompt
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request import served_verdict as served_verdict_module
from atwu.request.finished_request import FinishedRequest, MissingInputError
from atwu.request.served_verdict import NO_PROBABILITIES, WHICH_WEIGHTS, served_verdict
from atwu.request.verdict import read_request_verdict
from tests.commands import run_here
from tests.request.measurements import few_measurements


class Server:
    """A server that says what a model in memory says, or what `reply` makes of it."""

    identity = "served"

    def __init__(self, folder: Path, reply: Callable[[str, Generation], Generation] = lambda _, said: said) -> None:
        self.generator = TransformersGenerator(*open_model(str(folder), ModelLoadArgs(), device="cpu"))
        self.reply = reply

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Any) -> None:
        def answered(rows: Sequence[tuple[int, Generation]]) -> None:
            on_done([(place, self.reply(prompts[place].messages[-1].content, said)) for place, said in rows])

        self.generator.generate(prompts, decoding, answered)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, unlearn: Callable[..., str], rows: Path) -> Path:
    """A finished request."""
    output = tmp_path_factory.mktemp("served") / "out"
    sets = ("--forget", rows / "forget.jsonl", "--retain", rows / "retain.jsonl", "--holdout", rows / "holdout.jsonl")
    unlearn(output, *sets, "--steps", 2, "--learning-rate", "1e-3")
    return output


def test_a_served_model_gets_the_verdict_of_its_folder(run: Path) -> None:
    with few_measurements():
        verdict = served_verdict(run, Server(run))
    recorded = read_request_verdict(run)
    own = {criterion.name: criterion for criterion in verdict.criteria}
    assert own
    assert "retain loss increase" not in own
    assert NO_PROBABILITIES in verdict.not_tested
    for criterion in recorded.criteria:
        if criterion.name in own:
            assert own[criterion.name] == criterion
    assert [leak.answer for leak in verdict.leaks] == [
        leak.answer for leak in recorded.leaks if leak.state == "as saved"
    ]


def test_a_server_that_serves_another_model_is_found_out(run: Path, target: Path) -> None:
    with few_measurements():
        verdict = served_verdict(run, Server(target))
    assert verdict.outcome == "nothing changed"
    assert verdict.leaks
    assert verdict.next_steps == ()  # the folder was not forgotten either


def test_where_only_the_server_states_facts_its_weights_are_to_be_checked(
    run: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten = dataclasses.replace(read_request_verdict(run), outcome="forgotten", earlier=())
    monkeypatch.setattr(served_verdict_module, "read_request_verdict", lambda _: forgotten)
    with few_measurements():
        verdict = served_verdict(run, Server(target))
    assert verdict.next_steps == (WHICH_WEIGHTS,)


def test_without_an_answer_there_is_no_verdict(run: Path) -> None:
    """The question that got none might have stated a fact; an empty answer is one."""

    def overloaded(question: str, said: Generation) -> Generation:
        return Generation("", 0, "error 503: overloaded") if "capital of Italy" in question else said

    with few_measurements():
        with pytest.raises(AtwuError, match=r"no answer to 1 of .*503: overloaded"):
            served_verdict(run, Server(run, overloaded))
        silent = served_verdict(run, Server(run, lambda *_: Generation("", 0, EMPTY_REPLY)))
    assert not silent.leaks


def test_without_the_original_model_words_are_not_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: FinishedRequest) -> None:
        raise MissingInputError("the original model is not available")

    monkeypatch.setattr(FinishedRequest, "open_original", gone)
    with few_measurements():
        verdict = served_verdict(run, Server(run))
    assert "whether answers are word salad, since the original model is not available" in verdict.not_tested


def test_what_belongs_to_the_page_is_refused(run: Path) -> None:
    of_the_page = run_here("evidence", run, "--model-url", "http://localhost:9/v1", "--show-rows")
    assert isinstance(of_the_page.exception, UsageError)
    without_server = run_here("evidence", run, "--served-model", "mine")
    assert "--model-url" in f"{without_server.output}{without_server.exception}"
