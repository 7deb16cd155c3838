"""Requests: settings and key that are sent, and the parts of a reply that are read; secrets are never shown."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from typing import Any

import pytest

from atwu.data.schema import Message
from atwu.judge.chat_model import CUT_OFF, ChatRequest, Reply
from atwu.judge.client import ChatServerError, OpenAIChat
from tests.judge.conftest import KEY, VERDICT, ask, make_request, stats

pytest.importorskip("openai")

pytestmark = pytest.mark.usefixtures("surroundings")


def test_replies_keep_their_order_and_token_counts(server: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1")
    texts = [f"Say it.\nREPLY: answer number {index}" for index in range(30)]
    replies = ask(chat, [make_request(text) for text in texts])
    assert [reply.text for reply in replies] == [f"answer number {index}" for index in range(30)]
    assert replies[0] == Reply(text="answer number 0", prompt_tokens=9, completion_tokens=3)
    assert ask(chat) == [Reply(text=VERDICT, prompt_tokens=9, completion_tokens=4)]
    assert ask(chat, []) == []


@pytest.mark.parametrize("place", ["header", "address"])
@pytest.mark.parametrize("behaviour", ["v1", "unauthorized", "forbidden", "bad-request", "always-error-500", "echo"])
def test_secrets_are_never_shown(
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
            ask(chat)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        shown.append(str(caught.value))
    elif behaviour == "echo":
        sent = json.loads(str(ask(chat)[0].text))
        assert sent["authorization"][::-1] == (f"Bearer {KEY}" if place == "header" else f"Basic {secrets[2]}")
        assert sent["path"][::-1].endswith("?token=queryToken99") == (place == "address")
    else:
        shown.append(repr(ask(chat)))
    shown += [record.getMessage() + str(record.__dict__) for record in caplog.records]
    for secret in secrets:
        assert secret not in "\n".join(shown)
    assert "You check answers" not in caplog.text


def test_parameters_that_a_server_rejects_are_omitted_from_then_on(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/new-parameters/v1", max_retries=0, concurrency=1)
    for _ in range(2):
        sent = json.loads(str(ask(chat)[0].text))
        assert set(sent) == {"model", "messages", "max_completion_tokens"}
    assert stats(server, "new-parameters")[0] == 5
    assert [record.args[1] for record in caplog.records if record.args] == ["seed", "temperature"]


def test_a_key_in_a_reply_is_removed(server: str) -> None:
    (reply,) = ask(OpenAIChat("tiny", base_url=f"{server}/echo-key/v1"))
    assert reply.text == "Your header is Bearer ***."


def test_works_inside_an_event_loop_as_in_a_notebook(server: str) -> None:
    async def cell() -> list[str | None]:
        found: list[str | None] = []
        chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=2)
        chat.complete([make_request()] * 3, lambda _, reply: found.append(reply.text))
        return found

    assert asyncio.run(cell()) == [VERDICT] * 3


def test_all_settings_are_sent(server: str) -> None:
    request = ChatRequest((Message("user", "Tavi Brook?"),), max_tokens=7, temperature=0.5, seed=3)
    sent = json.loads(str(ask(OpenAIChat("tiny", base_url=f"{server}/echo/v1"), [request])[0].text))
    assert sent["path"][::-1] == "/echo/v1/chat/completions"
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
        ("content-filter", Reply(error="the server's content filter blocked the reply")),
        ("length-without-text", Reply(error=CUT_OFF, cut=True)),
    ],
)
def test_unusual_finish_reasons_keep_their_text_and_are_not_requested_again(
    server: str, behaviour: str, reply: Reply
) -> None:
    assert ask(OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1")) == [reply]
    assert stats(server, behaviour)[0] == 1


def test_a_text_that_cannot_be_encoded_is_an_error_of_its_request(server: str) -> None:
    replies = ask(OpenAIChat("tiny", base_url=f"{server}/v1"), [make_request("\ud800"), make_request()])
    assert "UnicodeEncodeError" in str(replies[0].error)
    assert replies[1].text == VERDICT


@pytest.mark.parametrize("key", [None, "", "  "])
def test_the_hosted_api_needs_a_key_and_other_servers_do_not(
    server: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        OpenAIChat("tiny")
    with pytest.raises(ValueError, match="OTHER_KEY"):
        OpenAIChat("tiny", api_key_env="OTHER_KEY")
    sent = json.loads(str(ask(OpenAIChat("tiny", base_url=f"{server}/echo/v1"))[0].text))
    assert sent["authorization"][::-1] == "Bearer none"
    with pytest.raises(ChatServerError, match=r"\(401\).*OPENAI_API_KEY"):
        ask(OpenAIChat("tiny", base_url=f"{server}/unauthorized/v1"))


def test_the_base_url_may_come_from_the_environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server}/v1/")
    chat = OpenAIChat("tiny")
    assert ask(chat)[0].text == VERDICT
    assert chat.identity == {"kind": "openai", "model": "tiny", "base_url": f"{server}/v1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": "localhost:8000/v1"}, "base_url"),
        ({"base_url": "http://orla:gate@way:secret/v1"}, "base_url"),
        ({"api_key_env": KEY}, "api_key_env"),
    ],
)
def test_invalid_settings_are_rejected_without_showing_secrets(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        OpenAIChat(**{"model": "tiny", **changes})
    for secret in (KEY, "gate", "secret"):
        assert secret not in "".join(traceback.format_exception(caught.value)).partition("Error: ")[2]


def test_a_key_that_is_not_a_valid_header_is_rejected_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-first\nsk-second")
    with pytest.raises(ValueError, match=r"OPENAI_API_KEY.*space") as caught:
        OpenAIChat("tiny")
    assert "sk-" not in str(caught.value)


def test_equal_urls_in_different_spellings_have_the_same_identity() -> None:
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
def test_the_model_name_returned_by_the_server_is_kept(server: str, behaviour: str, served: dict[str, Any]) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1".replace("/v1/v1", "/v1"))
    assert ask(chat)[0].served == served
