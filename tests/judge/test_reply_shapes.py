"""Replies of servers in many shapes: the right text, or one line with the reason, which no shape makes a traceback."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from atwu.judge.asker import Asker, Unscored
from atwu.judge.client import ChatServerError, OpenAIChat
from atwu.judge.outcomes import retry_after
from atwu.judge.reply_cache import ReplyCache
from tests.judge.conftest import VERDICT, ask, make_request
from tests.judge.misbehaving_server import completion

pytest.importorskip("openai")

pytestmark = pytest.mark.usefixtures("surroundings")

OTHER = make_request("REPLY: other")


def body(content: Any, **changes: Any) -> str:
    return json.dumps(completion(content, **changes))


def message(**fields: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **fields}}]})


def usage(**counts: Any) -> str:
    return json.dumps(completion(VERDICT) | {"usage": counts})


def parts(*found: Any) -> str:
    return body(list(found))


TEXT = {"type": "text", "text": VERDICT}
TEXTS: dict[str, tuple[str, str]] = {
    "plain": (body(VERDICT), VERDICT),
    "without id, object and created": (message(content=VERDICT), VERDICT),
    "one part": (parts(TEXT), VERDICT),
    "two parts": (parts({"type": "text", "text": VERDICT[:9]}, {"type": "text", "text": VERDICT[9:]}), VERDICT),
    "thoughts in a part": (parts({"type": "thinking", "thinking": [{"type": "text", "text": "NO"}]}, TEXT), VERDICT),
    "thoughts in a field": (message(content=VERDICT, reasoning_content="NO"), VERDICT),
    "refusal": (body(None, refusal="I would rather not."), "I would rather not."),
    "empty text": (body(""), ""),
    "filtered after some text": (body(VERDICT, finish="content_filter"), VERDICT),
    "cut after some text": (body(VERDICT, finish="length"), VERDICT),
    "no finish reason": (json.dumps({"choices": [{"message": {"content": VERDICT}}]}), VERDICT),
    "finish reason a number": (
        json.dumps({"choices": [{"message": {"content": VERDICT}, "finish_reason": 3}]}),
        VERDICT,
    ),
    "two choices": (json.dumps({"choices": completion(VERDICT)["choices"] + completion("no")["choices"]}), VERDICT),
    "byte-order mark": ("\ufeff" + body(VERDICT), VERDICT),
    "white space around": (f"\n\n {body(VERDICT)} \n", VERDICT),
    "usage missing": (body(VERDICT), VERDICT),
    "usage null": (json.dumps(completion(VERDICT) | {"usage": None}), VERDICT),
    "usage a list": (json.dumps(completion(VERDICT) | {"usage": [1, 2]}), VERDICT),
    "usage of 1e400": (usage(prompt_tokens=1).replace(": 1}", ": 1e400}"), VERDICT),
    "usage of 10^30": (usage(prompt_tokens=10**30, completion_tokens=10**30), VERDICT),
    "usage NaN": (usage(prompt_tokens=float("nan"), completion_tokens=float("inf")), VERDICT),
    "usage below 0": (usage(prompt_tokens=-5, completion_tokens=-1), VERDICT),
    "usage of text": (usage(prompt_tokens="12", completion_tokens=True), VERDICT),
    "model a list": (json.dumps(completion(VERDICT) | {"model": ["tiny"], "system_fingerprint": 3}), VERDICT),
    "NUL in the text": (body("\0YES"), "\0YES"),
    "error null": (json.dumps(completion(VERDICT) | {"error": None}), VERDICT),
}
FAILURES: dict[str, tuple[int, str, str]] = {
    "empty body": (200, "", "not valid JSON"),
    "page": (200, "<html>gateway</html>", "not valid JSON"),
    "events": (200, f"data: {body(VERDICT)}\n\ndata: [DONE]\n\n", "not valid JSON"),
    "cut JSON": (200, body(VERDICT)[:-9], "not valid JSON"),
    "two bodies": (200, body(VERDICT) * 2, "not valid JSON"),
    "not UTF-8": (200, '{"choices": "\ud800"}', "no message"),
    "nested without end": (200, "[" * 200_000, "not valid JSON"),
    "null": (200, "null", "no message"),
    "number": (200, "3", "no message"),
    "text": (200, '"YES"', "no message"),
    "list": (200, "[]", "no message"),
    "empty object": (200, "{}", "no message"),
    "choices null": (200, '{"choices": null}', "no message"),
    "choices empty": (200, '{"choices": []}', "no message"),
    "choices an object": (200, '{"choices": {"0": {}}}', "no message"),
    "choice null": (200, '{"choices": [null]}', "no message"),
    "message null": (200, '{"choices": [{"message": null}]}', "no message"),
    "message a text": (200, '{"choices": [{"message": "YES"}]}', "no message"),
    "old completion": (200, '{"choices": [{"text": "YES"}]}', "no message"),
    "tool call": (200, message(content=None, tool_calls=[{"id": "1"}]), "no content"),
    "content missing": (200, message(), "no content"),
    "content a number": (200, body(3), "not text"),
    "content an object": (200, body({"text": "YES"}), "not text"),
    "parts without text": (200, parts({"type": "image"}), "not text"),
    "text of a part a number": (200, parts({"type": "text", "text": 3}), "not text"),
    "filtered": (200, body(None, finish="content_filter"), "content filter"),
    "filtered and empty": (200, body("", finish="content_filter"), "content filter"),
    "cut before any text": (200, body("", finish="length"), "max_tokens"),
    "error in 200": (200, '{"error": {"message": "overloaded"}}', "overloaded"),
    "error a text in 200": (200, '{"error": "overloaded"}', "overloaded"),
    "page with 502": (502, "<html><h1>Bad Gateway</h1></html>", "502"),
    "nothing with 502": (502, "", "502"),
    "text with 503": (503, '"busy"', "503.*busy"),
    "list with 500": (500, "[1]", "500"),
    "null with 500": (500, "null", "500"),
    "error without message": (500, '{"error": {"code": 1}}', "500"),
    "status 418": (418, "{}", "418"),
    "status 400": (400, '{"error": {"message": "the prompt is too long"}}', "too long"),
    "details of 422": (422, '{"detail": [{"loc": ["body", "messages"], "msg": "bad"}]}', "422.*bad"),
}
REFUSALS: dict[str, tuple[str, int, str]] = {
    "temperature 1": ("temperature", 400, "'temperature' does not support 0.0 with this model. Only 1 is supported."),
    "temperature 2": ("temperature", 400, "Invalid value for temperature: must be 1"),
    "temperature 3": ("temperature", 400, "temperature may only be set to its default"),
    "temperature 4": ("temperature", 422, "body.temperature: Input should be greater than 0"),
    "seed 1": ("seed", 400, "Unrecognized request argument supplied: seed"),
    "seed 2": ("seed", 422, "Extra inputs are not permitted: seed"),
    "seed 3": ("seed", 400, "create() got an unexpected keyword argument 'seed'"),
    "seed 4": ("seed", 400, "Invalid JSON payload received. Cannot find field: seed"),
    "tokens": ("max_tokens", 400, "Use 'max_completion_tokens' instead."),
    "system 1": ("system", 400, "System role not supported"),
    "system 2": ("system", 400, "Conversation roles must alternate user/assistant/user/assistant/..."),
    "system 3": ("system", 400, "Only user and assistant roles are supported!"),
    "system 4": ("system", 500, "Jinja Exception: System role not supported at row 1"),
    "system 5": ("system", 422, "unknown role 'system'"),
    "system 6": ("system", 400, "This model has no system messages."),
}


def answered(server: str, behaviour: str, *given: Any) -> tuple[OpenAIChat, Any, Any]:
    """Return the client, the reply of this shape, and the reply to another request."""
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=0, concurrency=1)
    replies = ask(chat, [OTHER, make_request(f"BEHAVE:{behaviour} RAW:{json.dumps(given)}"), OTHER])
    assert replies[0].text == replies[2].text == "other"
    return chat, replies[1], replies[2]


@pytest.mark.parametrize("shape", TEXTS)
def test_texts_are_found_and_counts_are_sane(server: str, cache: ReplyCache, shape: str) -> None:
    content, text = TEXTS[shape]
    chat, reply, _ = answered(server, "raw", 200, {}, content)
    assert (reply.text, reply.error) == (text, None)
    assert 0 <= reply.prompt_tokens <= 10**9
    request = make_request(f"BEHAVE:raw RAW:{json.dumps([200, {}, content])}")
    asker = Asker(chat, cache, progress=False)
    assert asker.ask([request], str, version="v") == asker.ask([request], str, version="v") == [text]


@pytest.mark.parametrize("shape", FAILURES)
def test_replies_without_text_end_with_the_reason(server: str, shape: str) -> None:
    status, content, words = FAILURES[shape]
    _, reply, _ = answered(server, "raw", status, {}, content)
    assert reply.text is None
    assert re.search(words, str(reply.error))
    assert "\n" not in str(reply.error)


@pytest.mark.parametrize("wording", REFUSALS)
def test_what_a_server_refuses_is_left_out_from_then_on(server: str, wording: str) -> None:
    name, status, content = REFUSALS[wording]
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=0, concurrency=1)
    request = make_request(
        f"BEHAVE:refuses RAW:{json.dumps([name, status, json.dumps({'error': {'message': content}})])}"
    )
    replies = ask(chat, [request, request])
    assert [reply.text for reply in replies] == [VERDICT] * 2
    assert replies[0].served.get("left_out", ["max_tokens"]) == [name]


def test_what_does_not_help_to_leave_out_is_sent_again(server: str) -> None:
    content = json.dumps({"error": {"message": "the text about temperature and seed is too long"}})
    _, reply, other = answered(server, "raw", 400, {}, content)
    assert "too long" in str(reply.error)
    assert other.served == {}


@pytest.mark.parametrize("status", [500, 503])
def test_an_overloaded_system_is_no_system_turn(server: str, status: int) -> None:
    _, reply, other = answered(server, "raw", status, {}, '{"error": {"message": "the system is overloaded"}}')
    assert "overloaded" in str(reply.error)
    assert other.served == {}


def test_milliseconds_to_wait_have_priority() -> None:
    assert retry_after({"retry-after-ms": "250", "retry-after": "2"}) == 0.25
    assert retry_after({"retry-after-ms": "soon", "retry-after": "2"}) == 2.0


@pytest.mark.parametrize(
    "behaviour", ["always-error-500", "content-filter", "length-without-text", 'raw RAW:[200,{},"{}"]']
)
def test_a_run_without_any_readable_reply_ends_with_the_reason(server: str, cache: ReplyCache, behaviour: str) -> None:
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", max_retries=0)
    asker = Asker(chat, cache, progress=False)
    with pytest.raises(ChatServerError, match="none of 2 requests was answered; the last one: no reply: "):
        asker.ask([make_request(f"{number} BEHAVE:{behaviour}") for number in range(2)], json.loads, version="v")
    found = asker.ask([make_request(f"BEHAVE:{behaviour}"), make_request()], json.loads, version="v")
    assert [isinstance(each, Unscored) for each in found] == [True, False]
