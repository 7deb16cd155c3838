"""The client with a misbehaving server: what is sent, retried and given up, concurrency, and interrupts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import signal
import socket
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from atwu.data.schema import Message
from atwu.judge.chat_model import CUT_OFF, SAME_QUESTION, ChatRequest, Reply, rubric_request
from atwu.judge.client import ChatServerError, Endpoint, OpenAIChat, find_endpoint
from tests.commands import Started
from tests.judge.conftest import KEY, VERDICT, ask, make_request, stats
from tests.judge.misbehaving_server import completion

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")

pytestmark = pytest.mark.usefixtures("surroundings")


def test_replies_keep_their_order_and_token_counts_and_use_the_concurrency(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/slow/v1", concurrency=4)
    texts = [f"Say it.\nREPLY: answer number {index}" for index in range(12)]
    replies = ask(chat, [make_request(text) for text in texts])
    assert [reply.text for reply in replies] == [f"answer number {index}" for index in range(12)]
    assert 1 < stats(server, "slow")[1] <= 4
    assert replies[0] == Reply(text="answer number 0", prompt_tokens=9, completion_tokens=3)
    assert ask(chat, []) == []


def test_settings_and_key_are_sent_and_the_key_is_never_shown(server: str, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("", "openai", "httpx2", "httpcore2.http11", "httpcore2.connection"):
        caplog.set_level(logging.DEBUG, logger=name or None)
    chat = OpenAIChat("tiny", base_url=f"{server}/echo/v1")
    request = ChatRequest((Message("user", "Tavi Brook?"),), max_tokens=7, temperature=0.5, seed=3)
    sent = json.loads(str(ask(chat, [request])[0].text))
    assert (sent["path"][::-1], sent["authorization"][::-1]) == ("/echo/v1/chat/completions", f"Bearer {KEY}")
    assert sent["body"] == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Tavi Brook?"}],
        "max_tokens": 7,
        "temperature": 0.5,
        "seed": 3,
    }
    shown = [repr(chat), json.dumps(chat.identity), *(str(record.__dict__) for record in caplog.records)]
    assert KEY not in "\n".join(shown)


def test_parameters_that_a_server_rejects_are_omitted_from_then_on(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/new-parameters/v1", max_retries=0, concurrency=1)
    for _ in range(2):
        (reply,) = ask(chat, [replace(make_request(), schema='{"type": "object"}')])
        assert set(json.loads(str(reply.text))) == {"model", "messages", "max_completion_tokens"}
    assert stats(server, "new-parameters")[0] == 6
    assert [record.args[1] for record in caplog.records if record.args] == ["seed", "temperature"]


def test_a_schema_of_the_reply_is_sent(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/echo/v1")
    request = rubric_request(SAME_QUESTION, {"question": "Who?", "paraphrase": "Which one?"})
    sent = json.loads(str(ask(chat, [request])[0].text))["body"]["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"] == {
        "type": "object",
        "properties": {"same": {"type": "string", "enum": ["YES", "NO"]}},
        "required": ["same"],
        "additionalProperties": False,
    }


def test_a_refused_system_turn_is_merged_and_what_does_not_help_to_leave_out_is_sent_again(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=0, concurrency=1)
    replies = ask(chat, [make_request("BEHAVE:long"), make_request(), make_request("BEHAVE:no-system")])
    assert "too long" in str(replies[0].error)
    assert [reply.text for reply in replies[1:]] == [VERDICT] * 2


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("response_format", 400, "This response_format type is unavailable now"),
        ("temperature", 400, "'temperature' does not support 0.0 with this model. Only 1 is supported."),
        ("temperature", 422, "body.temperature: Input should be greater than 0"),
        ("seed", 400, "Unrecognized request argument supplied: seed"),
        ("max_tokens", 400, "Use 'max_completion_tokens' instead."),
        ("system", 400, "System role not supported"),
        ("system", 400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        ("system", 400, "Only user and assistant roles are supported!"),
        ("system", 500, "Jinja Exception: System role not supported at row 1"),
        ("system", 400, "Developer instruction is not enabled for models/gemma-3-1b-it"),
        (None, 500, "the system is overloaded"),
        (None, 500, "no temperature today"),
        (None, 429, "System role not supported"),
    ],
)
def test_what_a_server_refuses_is_recognized(name: str | None, status: int, message: str) -> None:
    chat = OpenAIChat("tiny")
    body = {"messages": [{"role": "system"}], "response_format": {}, "max_tokens": 5, "temperature": 0, "seed": 1}
    response = httpx.Response(status, request=httpx.Request("POST", "http://127.0.0.1:1/v1"))
    error = openai.APIStatusError(message, response=response, body={"message": message})
    assert chat._refused_parameter(error, body) == name
    if name is not None:
        less = {"messages": [{"role": "user"}]} | {key: body[key] for key in body if key not in (name, "messages")}
        assert chat._refused_parameter(error, less) is None


TEXT = {"type": "text", "text": VERDICT}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4}


@pytest.mark.parametrize(
    ("body", "reply"),
    [
        (completion(VERDICT) | {"usage": USAGE}, Reply(VERDICT, None, 9, 4)),
        (completion(VERDICT) | {"usage": {"prompt_tokens": -5, "completion_tokens": "12"}}, Reply(VERDICT)),
        (completion(VERDICT) | {"usage": None, "model": ["tiny"]}, Reply(VERDICT)),
        ({"choices": [{"message": {"content": VERDICT}}]}, Reply(VERDICT)),
        (completion([{"type": "thinking", "thinking": [{"type": "text", "text": "NO"}]}, TEXT]), Reply(VERDICT)),
        (completion(None, refusal="I would rather not."), Reply("I would rather not.")),
        (completion(""), Reply("")),
        (completion(VERDICT, finish="length"), Reply(VERDICT)),
        (completion(VERDICT, finish="content_filter"), Reply(VERDICT, filtered=True)),
        (completion("", finish="length") | {"usage": USAGE}, Reply(None, CUT_OFF, 9, 4, cut=True)),
        (completion(f"Your header is Bearer {KEY}."), Reply("Your header is Bearer ***.")),
        (completion("Orla \ud800 \ud83d\ude00"), Reply("Orla \ufffd \N{GRINNING FACE}")),
        (completion(None), Reply(None, "the reply has no content")),
        (completion(3), Reply(None, "the reply has no content")),
        (completion("", finish="content_filter"), Reply(None, "the server's content filter blocked the reply")),
        *(
            ({"choices": choices}, Reply(None, "the reply has no message"))
            for choices in (None, [], [{}], [{"text": "Y"}])
        ),
        ({"error": "overloaded"}, Reply(None, "the reply has no message")),
    ],
)
def test_replies_of_many_shapes_are_read(server: str, body: dict[str, Any], reply: Reply) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/raw/v1", max_retries=0)
    assert ask(chat, [make_request(f"RAW:{json.dumps(body)}")]) == [reply]


def test_works_inside_an_event_loop_as_in_a_notebook(server: str) -> None:
    async def cell() -> list[str | None]:
        found: list[str | None] = []
        chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=2)
        chat.complete([make_request()] * 3, lambda _, reply: found.append(reply.text))
        return found

    assert asyncio.run(cell()) == [VERDICT] * 3


def test_unusual_requests_and_replies_concern_only_themselves(server: str) -> None:
    texts = (
        "",
        "BEHAVE:bad-request",
        "BEHAVE:flagged",
        "\ud800",
        "BEHAVE:length-without-text",
        "BEHAVE:content-filter",
    )
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=1)
    texts += ("BEHAVE:forbidden", "REPLY: later")
    replies = ask(chat, [make_request(text) for text in texts])
    assert [reply.text for reply in replies] == [VERDICT, *[None] * 6, "later"]
    words = ("too long", "flagged", "UnicodeEncodeError", re.escape(CUT_OFF), "content filter", "403")
    assert all(re.search(word, str(reply.error)) for word, reply in zip(words, replies[1:], strict=False))
    assert stats(server, "bad-request")[0] == stats(server, "content-filter")[0] == 1


@pytest.mark.parametrize("behaviour", ["rate-limit", "timeout", "error-503", "cut-middle"])
def test_transient_failures_are_retried(server: str, behaviour: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", timeout=0.3 if behaviour == "timeout" else 60)
    assert [reply.text for reply in ask(chat)] == [VERDICT]
    assert stats(server, behaviour)[0] == 3


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("always-timeout", r"0\.3 seconds"),
        ("always-error-500", r"500.*out of order, sorry; \*\*\*"),
        ("always-cut-middle", "RemoteProtocolError"),
        ("broken", r"500: Internal Server Error; the server's log has the reason \(a model without a chat template"),
    ],
)
def test_permanent_failures_end_with_a_message_after_a_bounded_number_of_attempts(
    server: str, behaviour: str, words: str
) -> None:
    timeout = 60 if "error" in behaviour or "cut" in behaviour else 0.3
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", timeout=timeout, max_retries=2)
    (reply,) = ask(chat)
    assert reply.text is None
    assert re.search(words, str(reply.error))
    assert stats(server, behaviour)[0] == 3


@pytest.mark.parametrize(
    ("behaviour", "advice"),
    [
        ("unauthorized", "OPENAI_API_KEY"),
        ("unknown-model", "model.*'tiny'"),
        ("redirect", "/target/v1/chat/completions"),
        ("web-page", "web page.* /v1"),
    ],
)
def test_errors_that_concern_every_request_are_raised_at_once(server: str, behaviour: str, advice: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", concurrency=3)
    replies: list[Reply] = []
    with pytest.raises(ChatServerError, match=advice) as caught:
        chat.complete([make_request()] * 50, lambda _, reply: replies.append(reply))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert stats(server, behaviour)[0] <= 3
    assert replies == []
    assert stats(server, "target")[0] == 0


def test_an_unreachable_server_raises_an_error_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(ChatServerError, match=r"is the server running\?$"):
        OpenAIChat("tiny", base_url=f"http://127.0.0.1:{port}/v1").complete([make_request()] * 5, lambda *_: None)


def test_many_consecutive_failures_end_the_run_also_across_calls(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=4, max_retries=0)
    replies: list[Reply] = []
    ask(chat, [make_request("BEHAVE:bad-request")])
    requests = [make_request(f"BEHAVE:always-error-500 {index}") for index in range(50)]
    with pytest.raises(ChatServerError, match=r"20 requests.* 500"):
        chat.complete(requests, lambda _, reply: replies.append(reply))
    assert 19 <= len(replies) <= 19 + 3, "and what was in flight"
    mixed = [make_request("REPLY: now" if index % 20 == 19 else "BEHAVE:bad-request") for index in range(40)]
    assert len(ask(OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=1, max_retries=0), mixed)) == 40


def test_replies_are_returned_as_soon_as_they_arrive(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=2, max_retries=0)
    order: list[int] = []
    requests = [make_request("BEHAVE:always-timeout"), make_request(), make_request()]
    chat.complete(requests, lambda index, reply: order.append(index))
    assert order == [1, 2, 0]


class _StopError(Exception):
    pass


@pytest.mark.parametrize("kind", [_StopError, KeyboardInterrupt])
def test_an_exception_starts_no_new_request_and_keeps_replies_in_flight(server: str, kind: type[BaseException]) -> None:
    behaviour = f"slow-{kind.__name__}"
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", concurrency=3)
    kept: list[int] = []

    def on_reply(index: int, reply: Reply) -> None:
        kept.append(index)
        if len(kept) == 4:
            raise kind

    with pytest.raises(kind):
        chat.complete([make_request(f"REPLY: {index}") for index in range(40)], on_reply)
    assert len(kept) == len(set(kept)) == stats(server, behaviour)[0] <= 6


def test_an_interrupt_keeps_replies_in_flight(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/slow-interrupt/v1", concurrency=3)
    kept: list[int] = []
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        chat.complete([make_request(f"REPLY: {index}") for index in range(60)], lambda index, reply: kept.append(index))
    timer.join()
    assert 0 < len(kept) < 60
    assert len(kept) == len(set(kept)) == stats(server, "slow-interrupt")[0]


WAITING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from atwu.data.schema import Message
from atwu.judge.chat_model import ChatRequest
from atwu.judge.client import OpenAIChat
requests = [ChatRequest((Message("user", str(number)),), 9) for number in range(5)]
OpenAIChat("tiny", base_url=sys.argv[1], concurrency=2).complete(requests, lambda index, reply: None)
"""


@pytest.mark.night  # by day: an interrupt in this process, above, and calls in flight in cli/test_command.py
def test_the_first_interrupt_waits_with_a_message_and_the_second_exits(server: str) -> None:
    process = Started([f"{server}/stuck/v1"], code=WAITING)
    try:
        while stats(server, "stuck")[0] < 2:
            assert not process.ended(), process.said()
            time.sleep(0.05)
        process.send(signal.SIGINT)
        while not re.search(r"\b2 calls.*Ctrl-C", process.said()):
            assert not process.ended(), process.said()
            time.sleep(0.05)
        process.send(signal.SIGINT)
        assert process.wait().returncode != 0, "before the server would have answered"
    finally:
        with contextlib.suppress(ValueError, OSError):
            process.kill()
    assert stats(server, "stuck")[0] == 2


@pytest.mark.parametrize(
    ("url", "name", "key", "said"),
    [
        ("localhost:8000/v1", "OPENAI_API_KEY", KEY, "--judge-url.*must look like"),
        ("http://orla:gate@h/v1", "OPENAI_API_KEY", KEY, "base_url.*OPENAI_API_KEY"),
        ("http://h/v1?token=gate", "OPENAI_API_KEY", KEY, "base_url"),
        ("http://h/v1", KEY, KEY, "api_key_env"),
        (None, "OPENAI_API_KEY", "", "OPENAI_API_KEY"),
        (None, "OTHER_KEY", KEY, "OTHER_KEY"),
        (None, "OPENAI_API_KEY", "sk-first\nsk-second", r"OPENAI_API_KEY.*space"),
    ],
)
def test_invalid_addresses_and_keys_are_rejected_without_being_shown(url, name, key, said, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match=said) as caught:
        find_endpoint(url, name)
    assert not re.search("gate|sk-", str(caught.value))


def test_an_address_may_come_from_the_environment_and_has_one_identity(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:80/v1/")
    endpoint = find_endpoint(None, "OPENAI_API_KEY")
    assert endpoint == Endpoint("http://localhost:80/v1", "OPENAI_API_KEY", KEY)
    assert KEY not in repr(endpoint)
    assert endpoint.identity == find_endpoint("http://[::1]:80/v1", "OPENAI_API_KEY").identity
    assert endpoint.identity == "http://127.0.0.1:80/v1"
