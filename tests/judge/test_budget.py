"""Estimates and the limit of calls: worked examples, then that the limit holds and work resumes where it stopped."""

from __future__ import annotations

import json
import pickle
import re

import pytest

from atwu.data.schema import Message
from atwu.errors import BudgetReachedError
from atwu.judge.asker import Asker, Budget, CallEstimate, estimate_calls, prompt_tokens, text_tokens
from atwu.judge.chat_model import ChatRequest
from tests.judge.conftest import Fake


def repeating(prompt: int = 26, completion: int = 50) -> Fake:
    """A model that repeats the request, and reports so many tokens."""
    return Fake(lambda request: json.dumps(request.messages[0].content), (prompt, completion))


def requests(count: int) -> list[ChatRequest]:
    """Each about 26 prompt tokens: 88 characters / 4 + 4."""
    return [ChatRequest((Message("user", f"{number:04d}" * 22),), max_tokens=100) for number in range(count)]


def test_estimate_by_hand():
    two = ChatRequest((Message("system", "12345678"), Message("user", "123456789")), max_tokens=50)
    assert (text_tokens(""), text_tokens("1234"), text_tokens("12345"), text_tokens("ß")) == (0, 1, 2, 1)
    assert prompt_tokens(two) == (2 + 4) + (3 + 4)
    assert estimate_calls([two, two]) == CallEstimate(2, 26, 100)
    assert estimate_calls([two]) + estimate_calls([two]) == estimate_calls([two, two])
    assert re.search(r"1,200 calls.*240,000 .*120,000 ", str(CallEstimate(1200, 240_000, 120_000)))
    assert "nothing to send" in str(CallEstimate(0, 0, 0))


def test_a_budget_counts_what_is_taken_from_it():
    budget = Budget(5)
    assert [budget.take(wanted) for wanted in (3, 0, 4, 1)] == [3, 0, 2, 0]
    assert budget.sent == 5
    assert Budget().take(100) == 100


def test_stops_at_the_limit_and_the_same_command_continues(cache):
    asked, limit = requests(200), 150
    first = repeating()
    with pytest.raises(BudgetReachedError, match=r"150 calls.*\b50 answers") as stop:
        Asker(first, cache, budget=Budget(limit), progress=False).ask(asked, json.loads)
    assert len(first.asked) == cache.count() == limit
    again = pickle.loads(pickle.dumps(stop.value))
    assert (again.limit, again.unjudged) == (limit, 50)

    second = repeating()
    asker = Asker(second, cache, budget=Budget(limit), progress=False)
    assert asker.ask(asked, json.loads) == [request.messages[0].content for request in asked]
    assert len(second.asked) == 50
    assert not set(second.asked) & set(first.asked)
    assert (asker.cost["judge_calls"], asker.cost["judge_prompt_tokens"]) == (200, 200 * 26)


def test_repeated_requests_are_taken_from_the_same_budget(cache):
    """Unreadable replies: 3 attempts for each of 2 requests would be 6 calls."""

    def unreadable(text: str) -> str:
        raise ValueError("never")

    model = repeating()
    with pytest.raises(BudgetReachedError, match=r"\b2 answers"):
        Asker(model, cache, budget=Budget(5), progress=False).ask(requests(2), unreadable)
    assert model.batches == [2, 2, 1]


def test_tokens_of_a_server_that_reports_none_are_estimated(cache):
    asker = Asker(repeating(0, 0), cache, progress=False)
    asker.ask(requests(1), json.loads)
    assert (asker.cost["judge_prompt_tokens"], asker.cost["judge_reply_tokens"]) == (
        26,
        23,
    )  # 88 characters and two quotes
