"""Addresses, and replies of servers in many shapes: the right text, or one line with the reason; secrets are not shown."""

from __future__ import annotations

import json
import re
import time
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest

from atwu.judge.chat_model import CUT_OFF, Reply
from atwu.judge.outcomes import (
    CallFailure,
    Endpoint,
    find_endpoint,
    read_completion,
    read_status,
    refused_parameter,
    retry_after,
)
from tests.judge.conftest import KEY, VERDICT
from tests.judge.misbehaving_server import completion

ENDPOINT = Endpoint("http://127.0.0.1:1/v1", "OPENAI_API_KEY", KEY)
TEXT = {"type": "text", "text": VERDICT}


def with_usage(**counts: Any) -> dict[str, Any]:
    return completion(VERDICT) | {"usage": counts}


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [fields]}


def read(body: Any) -> Reply | CallFailure:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_completion(content, ENDPOINT)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (completion(VERDICT), VERDICT),
        (choice(message={"content": VERDICT}), VERDICT),
        (choice(message={"content": VERDICT, "reasoning_content": "NO"}, finish_reason=3), VERDICT),
        (completion([TEXT]), VERDICT),
        (completion([{"type": "text", "text": VERDICT[:9]}, {"type": "text", "text": VERDICT[9:]}]), VERDICT),
        (completion([{"type": "thinking", "thinking": [{"type": "text", "text": "NO"}]}, TEXT]), VERDICT),
        (completion(None, refusal="I would rather not."), "I would rather not."),
        (completion(""), ""),
        (completion(VERDICT, finish="length"), VERDICT),
        (completion(VERDICT) | {"usage": None, "error": None}, VERDICT),
        (completion(VERDICT) | {"usage": [1, 2], "model": ["tiny"], "system_fingerprint": 3}, VERDICT),
        (with_usage(prompt_tokens=10**30, completion_tokens=float("nan")), VERDICT),
        (with_usage(prompt_tokens=-5, completion_tokens="12"), VERDICT),
        (completion(f"Your header is Bearer {KEY}."), "Your header is Bearer ***."),
        (completion("Orla \ud800 \ud83d\ude00"), "Orla \ufffd \N{GRINNING FACE}"),
    ],
)
def test_texts_are_found_and_counts_are_sane(body, text):
    assert read(body) == Reply(text)


def test_a_text_that_the_filter_cut_off_is_marked():
    assert read(completion(VERDICT, finish="content_filter")) == Reply(VERDICT, filtered=True)


def test_token_counts_are_kept():
    assert read(with_usage(prompt_tokens=9, completion_tokens=4)) == Reply(VERDICT, None, 9, 4)
    billed = {"usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    assert read(completion("", finish="length") | billed) == Reply(None, CUT_OFF, 9, 4, cut=True)
    assert read(completion(None) | billed) == CallFailure(
        "the reply has no content", billed=True, prompt_tokens=9, completion_tokens=4
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        *((body, "not valid JSON") for body in (b"", b'{"choices": [', b"[" * 200_000)),
        *(
            (body, "http://127.0.0.1:1/v1 answers with a web page; check the address")
            for body in (b"<html>", b"\n <!DOC")
        ),
        *(
            (body, "no message")
            for body in (None, 3, "YES", [], {}, choice(), choice(text="YES"), choice(message="YES"))
        ),
        *((body, "no message") for body in ({"choices": None}, {"choices": []}, {"choices": {"0": {}}})),
        *((body, "no content") for body in (completion(None), choice(message={"tool_calls": [{"id": "1"}]}))),
        *(
            (completion(content), "not text")
            for content in (3, {"text": "YES"}, [{"type": "image"}], [TEXT | {"text": 3}])
        ),
        (completion("", finish="content_filter"), "content filter"),
        ({"error": {"message": f"overloaded {KEY}"}}, r"overloaded \*\*\*$"),
        ({"error": "overloaded"}, "overloaded"),
    ],
)
def test_replies_without_text_have_a_reason(body, words):
    found = read(body)
    assert isinstance(found, CallFailure)
    assert re.search(words, found.message)
    assert found.retry == ("filter" not in words)
    assert found.billed == (not isinstance(body, dict) or (not {"error"} & body.keys() and found.retry))


def error(status: int, body: Any, headers: Any = (), **fields: Any) -> Any:
    more = {"code": None, "param": None} | fields
    return SimpleNamespace(status_code=status, body=body, response=SimpleNamespace(headers=dict(headers)), **more)


@pytest.mark.parametrize(
    ("given", "words", "kind"),
    [
        (error(401, {"message": f"Incorrect API key: {KEY}"}), "OPENAI_API_KEY", "fatal"),
        (error(403, {"message": f"No access with {KEY}"}), r"\*\*\*.*OPENAI_API_KEY.*'tiny'", "maybe_fatal"),
        (error(403, {"message": "Your input was flagged by moderation"}), "flagged", "neither"),
        (error(404, {"message": "The model `tiny` does not exist."}), "model.*'tiny'", "maybe_fatal"),
        (error(400, {"message": "tiny is not a valid model ID"}), "model.*'tiny'", "maybe_fatal"),
        (error(400, {"message": "invalid value: destiny is unknown to tiny-print"}), "destiny", "neither"),
        (error(429, {"message": "exceeded"}, code="insufficient_quota"), "quota", "fatal"),
        (error(429, {"message": "later"}, {"retry-after": "3600"}), "3600 seconds", "fatal"),
        (error(307, {}, {"location": "/target?key=abcdef"}), "redirects to /target;", "fatal"),
        *((error(status, "busy"), f"{status}: busy", "retry") for status in (408, 409, 429, 500, 503)),
        (error(400, {"message": "not yet"}, {"x-should-retry": "true"}), "not yet", "retry"),
        (error(500, {"message": "never"}, {"x-should-retry": "false"}), "never", "neither"),
        (error(502, "<html>\n<h1>Bad Gateway</h1></html>"), "502", "retry"),
        (error(500, None), "500$", "retry"),
        (error(500, [1]), "500", "retry"),
        (error(418, {}), "418", "neither"),
        (error(422, {"detail": [{"loc": ["body", "messages"], "msg": "bad"}]}), "422.*bad", "neither"),
    ],
)
def test_http_errors_are_retried_or_end_the_request_or_the_run(given, words, kind):
    found = read_status(given, ENDPOINT, "tiny")
    assert re.search(words, found.message)
    assert not re.search(f"\n|{KEY}|abcdef", found.message)
    named = {"fatal": found.fatal, "maybe_fatal": found.maybe_fatal, "retry": found.retry}
    assert [name for name, value in named.items() if value] == ([] if kind == "neither" else [kind])


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("temperature", 400, "'temperature' does not support 0.0 with this model. Only 1 is supported."),
        ("temperature", 422, "body.temperature: Input should be greater than 0"),
        ("seed", 400, "Unrecognized request argument supplied: seed"),
        ("seed", 400, "create() got an unexpected keyword argument 'seed'"),
        ("max_tokens", 400, "Use 'max_completion_tokens' instead."),
        ("system", 400, "System role not supported"),
        ("system", 400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        ("system", 400, "Only user and assistant roles are supported!"),
        ("system", 500, "Jinja Exception: System role not supported at row 1"),
        ("system", 422, "unknown role 'system'"),
        ("system", 400, "Developer instruction is not enabled for models/gemma-3-1b-it"),
        ("system", 400, "this model takes no system prompt"),
        (None, 500, "the system is overloaded"),
        (None, 500, "no temperature today"),
        (None, 429, "System role not supported"),
    ],
)
def test_what_a_server_refuses_is_recognized(name, status, message):
    sent = {"max_tokens", "temperature", "seed", "system"}
    assert refused_parameter(error(status, {"message": message}), ENDPOINT, sent) == name
    assert refused_parameter(error(status, {"message": message}), ENDPOINT, sent - {name}) is None


@pytest.mark.parametrize("param", ["messages[0].role", "messages.0.role", "messages[0]", "system"])
def test_a_system_turn_may_be_refused_by_its_place_only(param):
    refused = error(400, {"message": "bad request"}, param=param)
    assert refused_parameter(refused, ENDPOINT, {"seed", "system"}) == "system"
    assert refused_parameter(error(400, {"message": "bad request"}, param="messages[1]"), ENDPOINT, {"system"}) is None
    detail = {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "Input should be 'user' or 'assistant'"}]}
    assert refused_parameter(error(422, detail), ENDPOINT, {"seed", "system"}) == "system"
    assert refused_parameter(error(400, {"message": "no"}, param="body.seed"), ENDPOINT, {"seed", "system"}) == "seed"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "2"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        *(({"retry-after": value}, None) for value in ("soon", "", "nan", "1e400", "Fri, 31 Dec 99999 23:59:59 GMT")),
    ],
)
def test_a_time_to_wait_is_read_as_milliseconds_seconds_or_date(headers, seconds):
    assert retry_after(headers) == seconds


def test_a_date_in_the_future_is_waited_for():
    found = retry_after({"retry-after": formatdate(time.time() + 36000, usegmt=True)})
    assert found == pytest.approx(36000, abs=3600)


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
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match=said) as caught:
        find_endpoint(url, name)
    assert not re.search("gate|sk-", str(caught.value))


def test_an_address_may_come_from_the_environment_and_has_one_identity(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:80/v1/")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    found = find_endpoint(None, "OPENAI_API_KEY")
    assert found == Endpoint("http://localhost:80/v1", "OPENAI_API_KEY", KEY)
    assert KEY not in repr(found)
    assert found.identity == find_endpoint("http://[::1]:80/v1", "OPENAI_API_KEY").identity == "http://127.0.0.1:80/v1"
