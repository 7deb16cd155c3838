"""What the client makes of failures: which are tried again and how often, which end a request, which end the run."""

from __future__ import annotations

import re
import socket
import time
from email.utils import formatdate

import pytest

from atwu.judge import client
from atwu.judge.chat_model import FailedAttempt, Reply
from atwu.judge.client import ChatServerError, OpenAIChat
from atwu.judge.outcomes import retry_after
from tests.judge.conftest import VERDICT, ask, make_request, stats

pytest.importorskip("openai")

pytestmark = pytest.mark.usefixtures("surroundings")


@pytest.mark.parametrize(
    "behaviour",
    [
        "rate-limit",
        "timeout",
        "error-408",
        "error-409",
        "error-500",
        "error-503",
        "malformed",
        "not-json",
        "cut-before",
        "cut-middle",
        "wrong-shape",
        "null-content",
        "odd-content",
        "null-billed",
        "error-in-200",
        "retry-wished",
    ],
)
def test_fleeting_failures_are_tried_again(server: str, behaviour: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", timeout=0.3 if behaviour == "timeout" else 60)
    assert [reply.text for reply in ask(chat)] == [VERDICT]
    assert stats(server, behaviour)[0] == 3


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("rate-limit", "429.*slow down.*3 times"),
        ("timeout", r"0\.1 seconds.*3 times"),
        ("error-500", r"500.*out of order, sorry; \*\*\*.*3 times"),
        ("malformed", "JSON.*3 times"),
        ("not-json", "JSON.*3 times"),
        ("cut-before", "RemoteProtocolError.*3 times"),
        ("cut-middle", "RemoteProtocolError.*3 times"),
        ("wrong-shape", "message.*3 times"),
        ("null-content", "content.*3 times"),
        ("odd-content", "content.*text.*3 times"),
        ("error-in-200", r"overloaded; Bearer \*\*\*.*3 times"),
    ],
)
def test_lasting_failures_end_in_words_after_bounded_tries(server: str, behaviour: str, words: str) -> None:
    timeout = 0.1 if behaviour == "timeout" else 60
    chat = OpenAIChat("tiny", base_url=f"{server}/always-{behaviour}/v1", timeout=timeout, max_retries=2)
    (reply,) = ask(chat)
    assert reply.text is None
    assert re.search(words, str(reply.error))
    assert stats(server, f"always-{behaviour}")[0] == 3


def test_one_bad_request_does_not_stop_the_others(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=0)
    requests = [
        make_request(),
        make_request("BEHAVE:bad-request"),
        make_request("BEHAVE:flagged"),
        make_request("REPLY: later"),
    ]
    replies = ask(chat, requests)
    assert [reply.text for reply in replies] == [VERDICT, None, None, "later"]
    assert "the prompt is too long" in str(replies[1].error)
    assert "flagged by moderation" in str(replies[2].error)
    assert stats(server, "bad-request")[0] == stats(server, "flagged")[0] == 1


@pytest.mark.parametrize(
    ("behaviour", "advice"),
    [
        ("unauthorized", "OPENAI_API_KEY"),
        ("forbidden", "OPENAI_API_KEY.*'tiny'"),
        ("unknown-model", "model.*'tiny'"),
        ("unknown-model-400", "model.*'tiny'"),
        ("quota", "quota"),
        ("rate-limit-hour", "3600 seconds"),
    ],
)
def test_what_concerns_every_request_is_raised_at_once(server: str, behaviour: str, advice: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", concurrency=3)
    replies: list[Reply] = []
    with pytest.raises(ChatServerError, match=advice):
        chat.complete([make_request()] * 50, lambda _, reply: replies.append(reply))
    assert stats(server, behaviour)[0] <= 3
    assert replies == []


def test_a_server_that_is_not_there_is_raised() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    chat = OpenAIChat("tiny", base_url=f"http://127.0.0.1:{port}/v1", max_retries=1)
    with pytest.raises(ChatServerError, match=r"server.* 2 times"):
        chat.complete([make_request()] * 5, lambda index, reply: None)


def test_a_date_to_wait_for_is_honoured(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/rate-limit-date/v1")
    assert ask(chat)[0].text == VERDICT
    count, _, arrivals = stats(server, "rate-limit-date")
    assert count == 3
    assert arrivals[-1] - arrivals[0] < 3


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2.0),
        (" 0.5 ", 0.5),
        ("-3", 0.0),
        ("soon", None),
        ("", None),
        ("nan", None),
        pytest.param(formatdate(time.time() + 36000, usegmt=True), pytest.approx(36000, abs=3600), id="in ten hours"),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}) == seconds


def test_tries_that_gave_nothing_are_told_with_what_the_server_billed(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=2)
    told: list[FailedAttempt] = []

    def on_failed_attempt(index: int, waste: FailedAttempt) -> bool:
        told.append(waste)
        return True

    replies: list[Reply] = []
    chat.complete(
        [make_request("BEHAVE:always-null-billed")], lambda _, reply: replies.append(reply), on_failed_attempt
    )
    assert told == [
        FailedAttempt(100, 20, will_retry=True),
        FailedAttempt(100, 20, will_retry=True),
        FailedAttempt(100, 20, will_retry=False),
    ]
    assert [reply.text for reply in replies] == [None]
    assert re.search("content.*3 times", str(replies[0].error))


def test_a_server_that_drips_is_given_up(server: str) -> None:
    start = time.monotonic()
    replies = ask(OpenAIChat("tiny", base_url=f"{server}/drip/v1", timeout=0.3, max_retries=0))
    assert [reply.text for reply in replies] == [None]
    assert "0.3 seconds" in str(replies[0].error)
    assert time.monotonic() - start < 2


def test_redirects_are_not_followed(server: str) -> None:
    with pytest.raises(ChatServerError, match=r"/target/v1/chat/completions") as info:
        ask(OpenAIChat("tiny", base_url=f"{server}/redirect/v1"))
    assert "abcdef" not in str(info.value)
    assert stats(server, "target")[0] == 0


def test_the_servers_wish_about_retries_is_honoured(server: str) -> None:
    replies = ask(OpenAIChat("tiny", base_url=f"{server}/always-retry-unwished/v1"))
    assert [reply.text for reply in replies] == [None]
    assert re.search("500.*never", str(replies[0].error))
    assert stats(server, "always-retry-unwished")[0] == 1


def test_many_failures_in_a_row_end_the_run(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=4, max_retries=0)
    replies: list[Reply] = []
    requests = [make_request(f"BEHAVE:always-error-408 {index}") for index in range(100)]
    with pytest.raises(ChatServerError, match=r"20 requests.* 408"):
        chat.complete(requests, lambda _, reply: replies.append(reply))
    assert len(replies) == 20
    assert stats(server, "always-error-408")[0] <= 23
    mixed = [
        make_request("REPLY: now" if index % 20 == 19 else f"BEHAVE:always-error-500 {index}") for index in range(60)
    ]
    assert len(ask(OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=1, max_retries=0), mixed)) == 60


def test_failures_in_a_row_are_counted_over_calls(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=0)
    for _ in range(19):
        ask(chat, [make_request("BEHAVE:bad-request")])
    with pytest.raises(ChatServerError, match="20 requests"):
        ask(chat, [make_request("BEHAVE:bad-request")])


def test_a_rate_limit_without_a_time_is_borne_with_patience(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RATE_LIMIT_PATIENCE", 0.9)
    assert ask(OpenAIChat("tiny", base_url=f"{server}/always-rate-limit-mute/v1", max_retries=2))[0].text is None
    count, _, arrivals = stats(server, "always-rate-limit-mute")
    assert count == 3
    assert arrivals[2] - arrivals[0] >= 0.9
    assert arrivals[1] - arrivals[0] >= 0.3


@pytest.mark.parametrize("behaviour", ["forbidden", "unknown-model", "unknown-model-400"])
def test_a_refusal_after_a_success_is_one_requests_own(server: str, behaviour: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=1)
    replies = ask(chat, [make_request(), make_request(f"BEHAVE:{behaviour}"), make_request()])
    assert [reply.text for reply in replies] == [VERDICT, None, VERDICT]


def test_a_text_with_the_models_letters_in_it_does_not_name_the_model(server: str) -> None:
    assert "destiny" in str(ask(OpenAIChat("tiny", base_url=f"{server}/like-a-model/v1"))[0].error)
