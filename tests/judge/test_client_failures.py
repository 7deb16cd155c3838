"""Failures: which are retried and how often, which end a request, which end the run."""

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
def test_transient_failures_are_retried(server: str, behaviour: str) -> None:
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
def test_permanent_failures_end_with_a_message_after_a_bounded_number_of_attempts(
    server: str, behaviour: str, words: str
) -> None:
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
def test_errors_that_concern_every_request_are_raised_at_once(server: str, behaviour: str, advice: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", concurrency=3)
    replies: list[Reply] = []
    with pytest.raises(ChatServerError, match=advice):
        chat.complete([make_request()] * 50, lambda _, reply: replies.append(reply))
    assert stats(server, behaviour)[0] <= 3
    assert replies == []


def test_an_unreachable_server_raises_an_error() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    chat = OpenAIChat("tiny", base_url=f"http://127.0.0.1:{port}/v1", max_retries=1)
    with pytest.raises(ChatServerError, match=r"server.* 2 times"):
        chat.complete([make_request()] * 5, lambda index, reply: None)


def test_a_retry_after_date_is_respected(server: str) -> None:
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
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Fri, 99999999999999999999 Dec 2020 00:00:00 GMT", None),
        ("1e400", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}) == seconds


def test_failed_attempts_are_reported_with_the_usage_that_the_server_billed(server: str) -> None:
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


def test_a_server_that_sends_too_slowly_times_out(server: str) -> None:
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


def test_a_server_can_forbid_retries(server: str) -> None:
    replies = ask(OpenAIChat("tiny", base_url=f"{server}/always-retry-unwished/v1"))
    assert [reply.text for reply in replies] == [None]
    assert re.search("500.*never", str(replies[0].error))
    assert stats(server, "always-retry-unwished")[0] == 1


def test_many_consecutive_failures_end_the_run(server: str) -> None:
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


def test_consecutive_failures_are_counted_across_calls(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=0)
    for _ in range(19):
        ask(chat, [make_request("BEHAVE:bad-request")])
    with pytest.raises(ChatServerError, match="20 requests"):
        ask(chat, [make_request("BEHAVE:bad-request")])


def test_a_rate_limit_without_a_time_is_retried_with_growing_delays(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_RATE_LIMIT_PATIENCE", 0.9)
    assert ask(OpenAIChat("tiny", base_url=f"{server}/always-rate-limit-mute/v1", max_retries=2))[0].text is None
    count, _, arrivals = stats(server, "always-rate-limit-mute")
    assert count == 3
    assert arrivals[2] - arrivals[0] >= 0.9
    assert arrivals[1] - arrivals[0] >= 0.3


@pytest.mark.parametrize("behaviour", ["forbidden", "unknown-model", "unknown-model-400"])
def test_a_client_error_after_a_success_concerns_only_its_request(server: str, behaviour: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=1)
    replies = ask(chat, [make_request(), make_request(f"BEHAVE:{behaviour}"), make_request()])
    assert [reply.text for reply in replies] == [VERDICT, None, VERDICT]


def test_an_error_that_merely_contains_the_model_name_is_not_an_unknown_model_error(server: str) -> None:
    assert "destiny" in str(ask(OpenAIChat("tiny", base_url=f"{server}/like-a-model/v1"))[0].error)
