"""The client against a server in another process that misbehaves on purpose."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from atwu.data.schema import Message
from atwu.judge import client
from atwu.judge.answers import CUT, Answer, retry_after
from atwu.judge.chat import ChatRequest, Reply
from atwu.judge.client import ChatServerError, OpenAIChat

pytest.importorskip("openai")

KEY = "sk-test-Kelbury-0123456789"
VERDICT = '{"verdict": "YES", "reason": "stated"}'


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    script = Path(__file__).with_name("misbehaving_server.py")
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("OPENAI_BASE_URL", "OPENAI_CUSTOM_HEADERS", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client, "_FIRST_DELAY", 0.01)


def _request(text: str = "Was Orla Venn born in Kelbury?") -> ChatRequest:
    return ChatRequest((Message("system", "You check answers."), Message("user", text)), max_tokens=20)


def _ask(chat: OpenAIChat, requests: Sequence[ChatRequest] | None = None) -> list[Reply]:
    requests = [_request()] if requests is None else requests
    found: dict[int, Reply] = {}

    def keep(index: int, reply: Reply) -> None:
        assert index not in found
        assert threading.current_thread() is threading.main_thread()
        found[index] = reply

    chat.complete(requests, keep)
    assert sorted(found) == list(range(len(requests)))
    return [found[index] for index in range(len(requests))]


def _stats(server: str, behaviour: str) -> tuple[int, int, list[float]]:
    with urllib.request.urlopen(f"{server}/stats", timeout=5) as response:
        stats = json.load(response)
    return (
        stats["counts"].get(behaviour, 0),
        stats["max_concurrency"].get(behaviour, 0),
        stats["arrivals"].get(behaviour, []),
    )


def test_replies_keep_their_places_and_token_counts(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1")
    texts = [f"Say it.\nREPLY: answer number {index}" for index in range(30)]
    replies = _ask(chat, [_request(text) for text in texts])
    assert [reply.text for reply in replies] == [f"answer number {index}" for index in range(30)]
    assert replies[0] == Reply(text="answer number 0", prompt_tokens=9, completion_tokens=3)
    assert _ask(chat) == [Reply(text=VERDICT, prompt_tokens=9, completion_tokens=4)]
    assert _ask(chat, []) == []


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
    assert [reply.text for reply in _ask(chat)] == [VERDICT]
    assert _stats(server, behaviour)[0] == 3


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("rate-limit", "the server answered 429: slow down (tried 3 times)"),
        ("timeout", "no reply within 0.1 seconds (tried 3 times)"),
        ("error-500", "the server answered 500: out of order, sorry; *** (tried 3 times)"),
        ("malformed", "the reply is not valid JSON (tried 3 times)"),
        ("not-json", "the reply is not valid JSON (tried 3 times)"),
        ("cut-before", "the connection was cut (RemoteProtocolError) (tried 3 times)"),
        ("cut-middle", "the connection was cut (RemoteProtocolError) (tried 3 times)"),
        ("wrong-shape", "the reply has no message (tried 3 times)"),
        ("null-content", "the reply has no content (tried 3 times)"),
        ("odd-content", "the reply's content is not text (tried 3 times)"),
        ("error-in-200", "the server answered with an error: overloaded; Bearer *** (tried 3 times)"),
    ],
)
def test_lasting_failures_end_in_words_after_bounded_tries(server: str, behaviour: str, words: str) -> None:
    timeout = 0.1 if behaviour == "timeout" else 60
    chat = OpenAIChat("tiny", base_url=f"{server}/always-{behaviour}/v1", timeout=timeout, max_retries=2)
    assert _ask(chat) == [Reply(error=words)]
    assert _stats(server, f"always-{behaviour}")[0] == 3


def test_one_bad_request_does_not_stop_the_others(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=0)
    requests = [_request(), _request("BEHAVE:bad-request"), _request("BEHAVE:flagged"), _request("REPLY: later")]
    replies = _ask(chat, requests)
    assert [reply.text for reply in replies] == [VERDICT, None, None, "later"]
    assert "the prompt is too long" in str(replies[1].error)
    assert "flagged by moderation" in str(replies[2].error)
    assert _stats(server, "bad-request")[0] == _stats(server, "flagged")[0] == 1


@pytest.mark.parametrize(
    ("behaviour", "advice"),
    [
        ("unauthorized", "set OPENAI_API_KEY to a valid one"),
        ("forbidden", "check that OPENAI_API_KEY may use model 'tiny'"),
        ("unknown-model", "check the model's name, 'tiny'"),
        ("unknown-model-400", "check the model's name, 'tiny'"),
        ("quota", "no quota left"),
        ("rate-limit-hour", "asks to wait 3600 seconds"),
    ],
)
def test_what_concerns_every_request_is_raised_at_once(server: str, behaviour: str, advice: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", concurrency=3)
    replies: list[Reply] = []
    with pytest.raises(ChatServerError, match=advice):
        chat.complete([_request()] * 50, lambda _, reply: replies.append(reply))
    assert _stats(server, behaviour)[0] <= 3
    assert replies == []


def test_a_server_that_is_not_there_is_raised() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    chat = OpenAIChat("tiny", base_url=f"http://127.0.0.1:{port}/v1", max_retries=1)
    with pytest.raises(ChatServerError, match="in 2 tries; is the server running"):
        chat.complete([_request()] * 5, lambda index, reply: None)


@pytest.mark.parametrize("place", ["header", "address"])
@pytest.mark.parametrize("behaviour", ["v1", "unauthorized", "forbidden", "bad-request", "always-error-500", "echo"])
def test_secrets_are_shown_nowhere(
    server: str, behaviour: str, place: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx2", "httpcore2.http11", "httpcore2.connection"):
        caplog.set_level(logging.DEBUG, logger=name)
    address, secrets = f"{server}/{behaviour}/v1".replace("/v1/v1", "/v1"), [KEY]
    if place == "address":
        monkeypatch.delenv("OPENAI_API_KEY")
        secrets = ["gate%40way", "gate@way", "b3JsYTpnYXRlQHdheQ==", "queryToken99"]
        address = address.replace("http://", "http://orla:gate%40way@") + "?token=queryToken99"
    chat = OpenAIChat("tiny", base_url=address, max_retries=1)
    shown = [repr(chat), json.dumps(chat.identity)]
    if behaviour in ("unauthorized", "forbidden"):
        with pytest.raises(ChatServerError) as caught:
            _ask(chat)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        shown.append(str(caught.value))
    elif behaviour == "echo":
        sent = json.loads(str(_ask(chat)[0].text))
        assert sent["authorization"] == (f"Bearer {KEY}" if place == "header" else f"Basic {secrets[2]}")
        assert sent["path"].endswith("?token=queryToken99") == (place == "address")
    else:
        shown.append(repr(_ask(chat)))
    shown += [record.getMessage() + str(record.__dict__) for record in caplog.records]
    for secret in secrets:
        assert secret not in "\n".join(shown)
    assert "You check answers" not in caplog.text


def test_concurrency_is_used_and_never_exceeded(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/slow/v1", concurrency=4)
    _ask(chat, [_request(f"REPLY: {index}") for index in range(16)])
    assert _stats(server, "slow")[1] == 4


def test_replies_come_in_as_soon_as_they_are_there(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=2, max_retries=0)
    order: list[int] = []
    chat.complete([_request("BEHAVE:always-timeout"), _request(), _request()], lambda index, reply: order.append(index))
    assert order == [1, 2, 0]


def test_a_rate_limit_holds_back_every_worker(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/rate-limit-once/v1", concurrency=2)
    assert len(_ask(chat, [_request(f"REPLY: {index}") for index in range(6)])) == 6
    count, _, arrivals = _stats(server, "rate-limit-once")
    assert count == 7
    early = [moment for moment in arrivals if moment - arrivals[0] < 0.5]
    assert len(early) <= 3, "the first, and what was on its way before its answer came"


def test_a_date_to_wait_for_is_honoured(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/rate-limit-date/v1")
    assert _ask(chat)[0].text == VERDICT
    count, _, arrivals = _stats(server, "rate-limit-date")
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
        (formatdate(time.time() + 3600, usegmt=True), pytest.approx(3600, abs=60)),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}) == seconds


class _StopError(Exception):
    pass


@pytest.mark.parametrize("kind", [_StopError, KeyboardInterrupt])
def test_an_exception_starts_nothing_new_and_keeps_what_is_paid_for(server: str, kind: type[BaseException]) -> None:
    behaviour = f"slow-{kind.__name__}"
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", concurrency=3)
    kept: list[int] = []

    def on_reply(index: int, reply: Reply) -> None:
        kept.append(index)
        if len(kept) == 4:
            raise kind

    with pytest.raises(kind):
        chat.complete([_request(f"REPLY: {index}") for index in range(40)], on_reply)
    assert len(kept) == len(set(kept)) == _stats(server, behaviour)[0] <= 6


def test_an_interrupt_while_waiting_keeps_what_is_paid_for(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/slow-interrupt/v1", concurrency=3)
    kept: list[int] = []
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        chat.complete([_request(f"REPLY: {index}") for index in range(60)], lambda index, reply: kept.append(index))
    timer.join()
    assert 0 < len(kept) < 60
    assert len(kept) == len(set(kept)) == _stats(server, "slow-interrupt")[0]


def test_stopping_does_not_wait_for_retries(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_FIRST_DELAY", 30.0)
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=2)

    def stop(index: int, reply: Reply) -> None:
        raise _StopError

    start = time.monotonic()
    with pytest.raises(_StopError):
        chat.complete([_request("BEHAVE:always-error-503"), _request("BEHAVE:slow")], stop)
    assert time.monotonic() - start < 5


def test_parameters_a_server_refuses_are_left_out_from_then_on(server: str, caplog: pytest.LogCaptureFixture) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/new-parameters/v1", max_retries=0, concurrency=1)
    for _ in range(2):
        sent = json.loads(str(_ask(chat)[0].text))
        assert set(sent) == {"model", "messages", "max_completion_tokens"}
    assert _stats(server, "new-parameters")[0] == 5
    assert [record.args[1] for record in caplog.records if record.args] == ["temperature", "seed"]


def test_all_settings_are_sent(server: str) -> None:
    request = ChatRequest((Message("user", "Tavi Brook?"),), max_tokens=7, temperature=0.5, seed=3)
    sent = json.loads(str(_ask(OpenAIChat("tiny", base_url=f"{server}/echo/v1"), [request])[0].text))
    assert sent["path"] == "/echo/v1/chat/completions"
    assert sent["body"] == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Tavi Brook?"}],
        "max_tokens": 7,
        "temperature": 0.5,
        "seed": 3,
    }


@pytest.mark.parametrize(
    ("behaviour", "reply"),
    [
        ("length", Reply(text=VERDICT, prompt_tokens=9, completion_tokens=4)),
        ("refusal", Reply(text="I would rather not.")),
        ("no-usage", Reply(text=VERDICT)),
        ("content-filter", Reply(error="the server's content filter held the reply back")),
        (
            "length-without-text",
            Reply(error=CUT),
        ),
    ],
)
def test_unusual_endings_keep_their_text_and_are_not_paid_twice(server: str, behaviour: str, reply: Reply) -> None:
    assert _ask(OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1")) == [reply]
    assert _stats(server, behaviour)[0] == 1


def test_a_text_that_cannot_be_encoded_is_an_error_of_its_request(server: str) -> None:
    replies = _ask(OpenAIChat("tiny", base_url=f"{server}/v1"), [_request("\ud800"), _request()])
    assert replies[0].error == "the request cannot be sent (UnicodeEncodeError)"
    assert replies[1].text == VERDICT


@pytest.mark.parametrize("key", [None, "", "  "])
def test_the_hosted_api_needs_a_key_and_other_servers_do_not(
    server: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match="set OPENAI_API_KEY"):
        OpenAIChat("tiny")
    with pytest.raises(ValueError, match="set OTHER_KEY"):
        OpenAIChat("tiny", api_key_env="OTHER_KEY")
    sent = json.loads(str(_ask(OpenAIChat("tiny", base_url=f"{server}/echo/v1"))[0].text))
    assert sent["authorization"] == "Bearer none"
    with pytest.raises(ChatServerError, match="needs a key \\(401\\); set OPENAI_API_KEY"):
        _ask(OpenAIChat("tiny", base_url=f"{server}/unauthorized/v1"))


def test_the_address_may_come_from_the_environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server}/v1/")
    chat = OpenAIChat("tiny")
    assert _ask(chat)[0].text == VERDICT
    assert chat.identity == {"kind": "openai", "model": "tiny", "base_url": f"{server}/v1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ""}, "model is empty"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"timeout": 0}, "timeout above 0"),
        ({"max_retries": -1}, "max_retries 0 or more"),
        ({"max_tokens": 0}, "max_tokens at least 1"),
        ({"base_url": "localhost:8000/v1"}, "base_url must look like"),
        ({"base_url": "http://orla:gate@way:secret/v1"}, "base_url must look like"),
        ({"api_key_env": KEY}, "api_key_env is the name"),
    ],
)
def test_unusable_settings_are_refused_without_showing_secrets(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        OpenAIChat(**{"model": "tiny", **changes})
    for secret in (KEY, "gate", "secret"):
        assert secret not in "".join(traceback.format_exception(caught.value)).partition("Error: ")[2]


def test_a_key_that_fits_no_header_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-first\nsk-second")
    with pytest.raises(ValueError, match="the key in OPENAI_API_KEY holds white space") as caught:
        OpenAIChat("tiny")
    assert "sk-" not in str(caught.value)


def test_tokens_of_failed_tries_are_counted(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=2)
    reply, failed = _ask(chat, [_request("BEHAVE:null-billed question"), _request("BEHAVE:always-null-billed")])
    assert (reply.prompt_tokens, reply.completion_tokens) == (2 * 100 + 5, 2 * 20 + 4)
    assert (failed.text, failed.prompt_tokens, failed.completion_tokens) == (None, 300, 60)


def test_a_server_that_drips_is_given_up(server: str) -> None:
    start = time.monotonic()
    replies = _ask(OpenAIChat("tiny", base_url=f"{server}/drip/v1", timeout=0.3, max_retries=0))
    assert replies == [Reply(error="no reply within 0.3 seconds")]
    assert time.monotonic() - start < 2


def test_redirects_are_not_followed(server: str) -> None:
    with pytest.raises(
        ChatServerError, match=r"redirects to /target/v1/chat/completions; give the final address"
    ) as info:
        _ask(OpenAIChat("tiny", base_url=f"{server}/redirect/v1"))
    assert "abcdef" not in str(info.value)
    assert _stats(server, "target")[0] == 0


def test_the_servers_wish_about_retries_is_honoured(server: str) -> None:
    replies = _ask(OpenAIChat("tiny", base_url=f"{server}/always-retry-unwished/v1"))
    assert replies == [Reply(error="the server answered 500: never")]
    assert _stats(server, "always-retry-unwished")[0] == 1


def test_many_failures_in_a_row_end_the_run(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=4, max_retries=0)
    replies: list[Reply] = []
    requests = [_request(f"BEHAVE:always-error-408 {index}") for index in range(100)]
    with pytest.raises(
        ChatServerError, match=r"20 requests in a row failed at .*the server answered 408.*run again later"
    ):
        chat.complete(requests, lambda _, reply: replies.append(reply))
    assert len(replies) == 20
    assert _stats(server, "always-error-408")[0] <= 23
    mixed = [_request("REPLY: now" if index % 20 == 19 else f"BEHAVE:always-error-500 {index}") for index in range(60)]
    assert len(_ask(OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=1, max_retries=0), mixed)) == 60


def test_failures_in_a_row_are_counted_over_calls(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=0)
    for _ in range(19):
        _ask(chat, [_request("BEHAVE:bad-request")])
    with pytest.raises(ChatServerError, match="20 requests in a row"):
        _ask(chat, [_request("BEHAVE:bad-request")])


def test_a_rate_limit_without_a_time_is_borne_with_patience(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_CROWDED_PATIENCE", 0.9)
    assert _ask(OpenAIChat("tiny", base_url=f"{server}/always-rate-limit-mute/v1", max_retries=2))[0].text is None
    count, _, arrivals = _stats(server, "always-rate-limit-mute")
    assert count == 3
    assert arrivals[2] - arrivals[0] >= 0.9
    assert arrivals[1] - arrivals[0] >= 0.3


@pytest.mark.parametrize("behaviour", ["forbidden", "unknown-model", "unknown-model-400"])
def test_a_refusal_after_a_success_is_one_requests_own(server: str, behaviour: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=1)
    replies = _ask(chat, [_request(), _request(f"BEHAVE:{behaviour}"), _request()])
    assert [reply.text for reply in replies] == [VERDICT, None, VERDICT]


def test_a_text_with_the_models_letters_in_it_does_not_name_the_model(server: str) -> None:
    assert "destiny" in str(_ask(OpenAIChat("tiny", base_url=f"{server}/like-a-model/v1"))[0].error)


def test_a_cap_of_the_client_overrides_and_is_part_of_the_identity(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/echo/v1", max_tokens=3000)
    assert json.loads(str(_ask(chat)[0].text))["body"]["max_tokens"] == 3000
    assert chat.identity["max_tokens"] == 3000


def test_identity_is_the_servers_and_not_its_spelling() -> None:
    def identity(url: str) -> str:
        return json.dumps(OpenAIChat("tiny", base_url=url).identity, sort_keys=True)

    assert identity("http://localhost:80/v1") == identity("http://127.0.0.1:80/v1/") == identity("http://[::1]:80/v1")
    assert (
        identity("http://h/v1?deployment=kelbury")
        != identity("http://h/v1?deployment=harbour")
        != identity("http://h/v1")
    )
    assert identity("http://h/v1?api_key=abcdef") == identity("http://h/v1?api_key=ghijkl") == identity("http://h/v1")
    assert "kelbury" not in identity("http://h/v1?deployment=kelbury")


@pytest.mark.parametrize(
    ("behaviour", "served"),
    [
        ("v1", {}),
        ("named", {"model": "tiny-2025", "system_fingerprint": "fp_1"}),
        ("new-parameters", {"left_out": ["temperature", "seed"]}),
    ],
)
def test_what_the_server_names_otherwise_is_kept(server: str, behaviour: str, served: dict[str, Any]) -> None:
    answers: list[Answer] = []
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1".replace("/v1/v1", "/v1"))
    chat.complete_metered([_request()], lambda _, answer: answers.append(answer), lambda *_: True)
    assert answers[0].served == served


WAITING = """
import sys
from atwu.data.schema import Message
from atwu.judge.chat import ChatRequest
from atwu.judge.client import OpenAIChat
requests = [ChatRequest((Message("user", str(number)),), 9) for number in range(5)]
OpenAIChat("tiny", base_url=sys.argv[1], concurrency=2).complete(requests, lambda index, reply: None)
"""


def test_the_first_interrupt_waits_and_says_so_and_the_second_does_not(server: str) -> None:
    command = [sys.executable, "-c", WAITING, f"{server}/stuck/v1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        try:
            while _stats(server, "stuck")[0] < 2:
                assert child.poll() is None
                time.sleep(0.05)
            os.kill(child.pid, signal.SIGINT)
            assert child.stderr is not None
            assert child.stderr.readline() == "stopping: 2 calls in flight are waited for; Ctrl-C again drops them\n"
            time.sleep(0.5)
            assert child.poll() is None
            os.kill(child.pid, signal.SIGINT)
            start = time.monotonic()
            assert child.wait(10) != 0
            assert time.monotonic() - start < 2
        finally:
            child.kill()
    assert _stats(server, "stuck")[0] == 2
