"""Requests to a chat model: what is cached, and when a run is stopped."""

from __future__ import annotations

import json
import re

import pytest

from atwu.data.schema import Message
from atwu.judge.asker import FIRST_REPLIES, Asker
from atwu.judge.chat_model import CUT_OFF, ChatRequest
from atwu.judge.client import ChatServerError, OpenAIChat
from tests.judge.conftest import Fake, stats

pytest.importorskip("openai")

pytestmark = pytest.mark.usefixtures("surroundings")


def requests(count: int, lead: str = "") -> list[ChatRequest]:
    """Each 100 prompt tokens and at most 20 of the reply by our estimate; more with a lead."""
    return [
        ChatRequest((Message("user", f"{lead}{number:04d}" + "." * 380),), max_tokens=20) for number in range(count)
    ]


def asker(chat, cache) -> Asker:
    return Asker(chat, cache, progress=False)


def test_failed_calls_are_not_cached(server, cache):
    chat = OpenAIChat("tiny", base_url=f"{server}/always-error-503/v1", max_retries=3)
    with pytest.raises(ChatServerError, match="503"):
        asker(chat, cache).ask(requests(1), json.loads)
    assert (stats(server, "always-error-503")[0], cache.count()) == (4, 0)


def test_a_reply_truncated_before_any_text_is_cached_and_not_requested_again(server, cache):
    chat = OpenAIChat("tiny", base_url=f"{server}/cut-billed/v1")
    for calls in (3, 0):
        asking = asker(chat, cache)
        with pytest.raises(ChatServerError, match=f"none of 3 .*{re.escape(CUT_OFF)}"):
            asking.ask(requests(3), json.loads)
        assert stats(server, "cut-billed")[0] == 3
        assert asking.cost == {"judge_calls": 3, "judge_prompt_tokens": 3 * 100, "judge_reply_tokens": 3 * 20}
        assert asking.budget.sent == calls
        assert asking.estimate(requests(3), json.loads).calls == 0


@pytest.mark.parametrize("text", ["I think that", None])
def test_a_run_is_stopped_if_all_first_replies_are_unreadable(server, cache, text):
    lead = f"REPLY:{text} " if text else "BEHAVE:cut-billed "
    chat = OpenAIChat("tiny", base_url=f"{server}/v1", concurrency=2)
    with pytest.raises(ChatServerError, match=r"\b20 replies"):
        asker(chat, cache).ask(requests(100, lead), json.loads)
    assert FIRST_REPLIES <= cache.count() <= FIRST_REPLIES + 1


def test_one_readable_reply_among_the_first_continues_the_run(cache):
    model = Fake(lambda request: "1" if "0010" in request.messages[0].content else "?")
    assert len(asker(model, cache).ask(requests(60), json.loads)) == 60


def test_a_token_limit_is_part_of_the_key_and_the_estimate(server, cache):
    asking = Asker(OpenAIChat("tiny", base_url=f"{server}/echo/v1"), cache, progress=False, max_tokens=700)
    assert asking.identity["max_tokens"] == 700
    assert asking.estimate(requests(2), json.loads).completion_tokens == 1400
    sent = asking.ask(requests(1), json.loads)[0]
    assert sent["body"]["max_tokens"] == 700
    assert asking.estimate(requests(1), json.loads).calls == 0
