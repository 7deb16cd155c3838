"""Answers of models that think, and of servers that do not answer every prompt."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import ClassVar

import pytest

from atwu.errors import AtwuError
from atwu.evaluation.backends import EndpointGenerator
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.registry import EvaluateConfig
from atwu.judge.chat_model import Reply
from atwu.judge.verdicts import Verdict
from tests.evaluation.conftest import Dice, Speaker, invented_people

METRICS = ["rouge", "key_tokens", "fluency", "judge", "forms", "families", "sampling"]
CONFIG = EvaluateConfig(icr_examples=0, paraphrases=1, samples=2)


def measured(generator, rows, **options):
    judge = Dice(verdicts=(True, False))
    how = Evaluation(generator=generator, metrics=METRICS, settings=CONFIG, judge=judge, progress=False, **options)
    found = evaluate(None, {"forget": rows}, how)
    return found, judge


def test_thoughts_are_stored_but_not_measured(tmp_path):
    rows = invented_people(4, "a")
    secrets = {row.question: row.answer for row in rows}

    def say(prompt):
        asked = f"{prompt.messages} {prompt.prefill}"
        thought = next((answer for question, answer in secrets.items() if question in asked), "?")
        return f"<think>{thought}" if "part 0" in asked else f"<think>\n{thought}\n</think>\n\nNo idea."

    speaker, store = Speaker(say=say), GenerationStore(tmp_path / "replies.sqlite")
    found, judge = measured(speaker, rows, store=store)
    assert {claim.answer for claim in judge.claims} == {"", "No idea."}
    assert found.sets["forget"]["key_token_recall"].value == 0
    assert found.rows["forget"].texts["answer"] == ("", "No idea.", "No idea.", "No idea.")
    with contextlib.closing(sqlite3.connect(store.path)) as file:
        assert any(rows[1].answer in value for (value,) in file.execute("SELECT value FROM replies"))
    assert re.search(r"answers \(generate\) end within their thoughts.*max_new_tokens", "\n".join(found.warnings))


class Server:
    """A chat model that gives no answer about the rows with these names."""

    identity: ClassVar = {"model": "server"}
    concurrency = 1

    def __init__(self, silent, reply=None):
        self.silent = silent
        self.reply = reply or Reply(error="blocked by the filter")

    def complete(self, requests, on_reply):
        for index, request in enumerate(requests):
            failed = any(name in request.messages[-1].content for name in self.silent)
            on_reply(index, self.reply if failed else Reply(text="In Kela1bury."))


def test_a_prompt_without_an_answer_is_unscored_and_the_others_are_measured():
    rows = invented_people(4, "a")
    found, judge = measured(EndpointGenerator(Server(["Venn0"])), rows)
    values = found.sets["forget"]
    assert {name: values[name].n for name in ("rouge_l_recall", "key_token_recall", "gibberish", "J_P")} == {
        "rouge_l_recall": 3,
        "key_token_recall": 3,
        "gibberish": 3,
        "J_P": 3,
    }
    assert values["J_P"].unscored == 2  # the question and its paraphrase
    assert values["leak_per_sample"].unscored == 2
    assert found.rows["forget"].texts["answer"][0] == ""
    assert all("Venn0" not in claim.question or claim.answer != "" for claim in judge.claims)
    (warning,) = (each for each in found.warnings if "(generate)" in each)
    assert re.fullmatch(
        r"\d+ of \d+ prompts \(generate\) got no answer and are not scored. First error: blocked .*", warning
    )


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(text="In Ke", filtered=True), "content filter cut the answer off"),
        (Reply(text=""), "the reply is empty"),
        (Reply(text=" \n"), "the reply is empty"),
    ],
)
def test_a_reply_that_is_cut_off_by_the_filter_or_empty_is_unscored(reply, reason):
    found, judge = measured(EndpointGenerator(Server(["Venn0"], reply)), invented_people(4, "a"))
    assert found.sets["forget"]["rouge_l_recall"].n == 3
    assert all(claim.answer.strip() not in ("In Ke", "") for claim in judge.claims)
    assert any(reason in warning for warning in found.warnings)


def test_the_reason_of_the_first_missing_verdict_is_a_warning():
    class Unreadable(Dice):
        def judge(self, claims):
            return [Verdict(None, "no JSON object"), *super().judge(claims[1:])]

    found = evaluate(
        None,
        {"forget": invented_people(4, "a")},
        Evaluation(
            generator=EndpointGenerator(Server([])),
            metrics=["judge"],
            settings=CONFIG,
            judge=Unreadable(),
            progress=False,
        ),
    )
    (warning,) = (each for each in found.warnings if "the judge" in each)
    assert warning == "the judge gave no readable verdict on 1 of 4 answers. First reason: no JSON object"


def test_a_server_that_answers_nothing_ends_the_evaluation():
    with pytest.raises(AtwuError, match=r"First error: blocked by the filter"):
        measured(EndpointGenerator(Server([""])), invented_people(2, "a"))
