"""Requests to a chat model: what is charged and cached, and when a run is stopped."""

from __future__ import annotations

import json
import re

import pytest

from atwu.data.schema import Message
from atwu.errors import BudgetReachedError
from atwu.judge.asker import FIRST_REPLIES, SLICE, Asker
from atwu.judge.budget import Budget, Prices
from atwu.judge.chat_model import CUT_OFF, ChatRequest
from atwu.judge.client import ChatServerError, OpenAIChat
from tests.judge.conftest import Fake, stats

pytest.importorskip("openai")

pytestmark = pytest.mark.usefixtures("surroundings")

PRICES = Prices(1, 10)
CALL = 1e-6 * (100 + 10 * 20)
"""USD that the server bills for a failed attempt, and USD that a request reserves."""


def requests(count: int, lead: str = "") -> list[ChatRequest]:
    """Each 100 prompt tokens and at most 20 of the reply by our estimate, USD 0.0003; more with a lead."""
    return [
        ChatRequest((Message("user", f"{lead}{number:04d}" + "." * 380),), max_tokens=20) for number in range(count)
    ]


def asker(chat, cache, budget: Budget | None = None) -> Asker:
    return Asker(chat, cache, budget=budget or Budget(), progress=False)


@pytest.mark.parametrize(
    ("behaviour", "count", "limit", "sent"),
    [
        ("always-null-billed", 8, 0.003, 10),
        ("always-null-billed", 1, 0.001, 3),  # of six attempts
        ("always-timeout", 1, 0.0008, 2),  # without reported usage, at their maximum cost
    ],
)
def test_attempts_without_reply_are_charged_and_the_limit_holds(server, cache, behaviour, count, limit, sent):
    budget, before = Budget(limit, PRICES), stats(server, behaviour)[0]
    chat = OpenAIChat("tiny", base_url=f"{server}/{behaviour}/v1", timeout=0.4 if "timeout" in behaviour else 60)
    asking = asker(chat, cache, budget)
    with pytest.raises(BudgetReachedError, match=rf"\b{count} answers"):
        asking.ask(requests(count), json.loads)
    assert stats(server, behaviour)[0] - before == sent
    assert (budget.spent, asking.usage.usd) == pytest.approx((sent * CALL, sent * CALL))
    assert cache.count() == 0


def test_failures_without_cost_are_not_charged(server, cache):
    budget = Budget(CALL, PRICES)
    chat = OpenAIChat("tiny", base_url=f"{server}/always-error-503/v1", max_retries=3)
    with pytest.raises(ChatServerError, match="503"):
        asker(chat, cache, budget).ask(requests(1), json.loads)
    assert (stats(server, "always-error-503")[0], budget.spent) == (4, 0.0)


def test_a_reply_truncated_before_any_text_is_cached_and_not_requested_again(server, cache):
    chat = OpenAIChat("tiny", base_url=f"{server}/cut-billed/v1")
    for turn in range(2):
        asking = asker(chat, cache, Budget(None, PRICES))
        with pytest.raises(ChatServerError, match=f"none of 3 .*{re.escape(CUT_OFF)}"):
            asking.ask(requests(3), json.loads)
        assert stats(server, "cut-billed")[0] == 3
        assert asking.usage.usd == pytest.approx(3 * CALL)
        assert asking.budget.spent == pytest.approx(0 if turn else 3 * CALL)
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


def test_the_cache_is_read_again_before_every_batch_of_requests(cache):
    """While one process waits for its first reply, another one does all the work."""
    other = Fake(lambda request: "1")
    asked = requests(5 * SLICE)

    def answer(request: ChatRequest) -> str:
        if len(model.asked) == 1:
            asker(other, cache).ask(asked, json.loads)
        return "2"

    model = Fake(answer)
    found = asker(model, cache).ask(asked, json.loads)
    assert len(model.asked) == SLICE
    assert found == [1] * len(asked), "the first stored reply is everybody's"
