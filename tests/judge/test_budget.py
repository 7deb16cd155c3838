"""Prices, estimates and the limit: worked examples, then that the limit holds and work resumes where it stopped."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.data.schema import Message
from atwu.errors import BudgetReachedError
from atwu.judge.asker import SLICE, Asker
from atwu.judge.budget import Budget, CostEstimate, Prices, estimate_cost, prompt_tokens, text_tokens
from atwu.judge.chat_model import ChatRequest
from atwu.judge.reply_cache import ReplyCache
from tests.judge.conftest import Fake

PRICES = Prices(input=0.25, output=2.0)


def bill(prompt: int, completion: int) -> Fake:
    """A model that bills so many tokens and repeats the request."""
    return Fake(lambda request: json.dumps(request.messages[0].content), (prompt, completion))


def request(text: str, *, max_tokens: int = 100) -> ChatRequest:
    return ChatRequest((Message("user", text),), max_tokens=max_tokens)


def requests(count: int) -> list[ChatRequest]:
    """Each about 26 prompt tokens: 88 characters / 4 + 4."""
    return [request(f"{number:04d}" * 22) for number in range(count)]


def test_estimate_by_hand():
    assert PRICES.cost(1_000_000, 1_000_000) == pytest.approx(2.25)
    two = ChatRequest((Message("system", "12345678"), Message("user", "123456789")), max_tokens=50)
    assert (text_tokens(""), text_tokens("1234"), text_tokens("12345"), text_tokens("ß")) == (0, 1, 2, 1)
    assert prompt_tokens(two) == (2 + 4) + (3 + 4)
    assert estimate_cost([two, two], PRICES) == CostEstimate(2, 26, 100, pytest.approx((0.25 * 26 + 2 * 100) / 1e6))
    assert estimate_cost([two], None) == CostEstimate(1, 13, 50, None)
    assert estimate_cost([two], PRICES) + estimate_cost([two], PRICES) == estimate_cost([two, two], PRICES)


def test_the_estimate_is_printed_as_readable_text():
    shown = str(CostEstimate(1200, 240_000, 120_000, 0.3))
    assert re.search(r"1,200 calls.*240,000 .*120,000 .*USD 0\.3000", shown)
    assert "price" in str(CostEstimate(1, 1, 1))
    assert "nothing to send" in str(CostEstimate(0, 0, 0, 0.0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Budget(1.0), "max_cost.*price"),
        (lambda: Budget(-1.0, PRICES), r"USD.* -1\.0"),
        (lambda: Budget(float("nan"), PRICES), r"\bnan"),
        (lambda: Prices(-0.1, 1), "input"),
        (lambda: Prices(0.1, float("inf")), "output"),
    ],
)
def test_invalid_prices_and_limits_are_rejected(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_number_of_requests_within_the_budget_by_hand():
    """One request: (0.25 * 26 + 2 * 100) / 1e6 = USD 0.0002065 at most."""
    budget = Budget(0.001, PRICES)
    assert budget.affordable(requests(10)) == 4
    budget.add(requests(1)[0], prompt=26, completion=20)  # USD 0.0000465
    assert budget.spent == pytest.approx(0.0000465)
    assert budget.affordable(requests(10)) == 4
    budget.add(requests(1)[0], prompt=26, completion=100)
    assert budget.affordable(requests(10)) == 3
    assert Budget(None, PRICES).affordable(requests(10)) == 10
    assert Budget(4 * 0.0002065, PRICES).affordable(requests(10)) == 4


def test_estimates_adapt_to_a_tokenizer_that_needs_more_tokens():
    """Billed 260 where 26 were estimated: the next ones count (0.25 * 260 + 2 * 100) / 1e6 = USD 0.000265."""
    budget = Budget(0.001, PRICES)
    budget.add(requests(1)[0], prompt=260, completion=0)  # USD 0.000065
    assert budget.affordable(requests(10)) == 3


def test_stops_before_the_limit_and_resumes_with_a_larger_one(tmp_path):
    cache, asked = ReplyCache(tmp_path / "replies.sqlite"), requests(200)
    first = bill(26, 50)  # USD 0.0001065 each, 0.0002065 reserved
    with pytest.raises(BudgetReachedError) as stop:
        Asker(first, cache, budget=Budget(0.015, PRICES), progress=False).ask(asked, json.loads)
    sent = len(first.asked)
    assert max(first.batches) == SLICE
    assert 0.015 - 0.0002065 < stop.value.spent <= 0.015
    assert stop.value.spent == pytest.approx(sent * 0.0001065)
    assert (stop.value.limit, stop.value.unjudged) == (0.015, 200 - sent)
    assert re.search(rf"USD {stop.value.spent:.4f} .*\b{200 - sent} answers .*--max-cost", str(stop.value))
    assert cache.count() == sent

    second = bill(26, 50)
    asker = Asker(second, cache, budget=Budget(1.0, PRICES), progress=False)
    assert asker.ask(asked, json.loads) == [each.messages[0].content for each in asked]
    assert len(second.asked) == 200 - sent
    assert not set(second.asked) & set(first.asked)
    assert asker.usage.replies == 200
    assert asker.usage.usd == pytest.approx(200 * 0.0001065)


def test_repeated_requests_are_charged_to_the_same_budget(tmp_path):
    """Unreadable replies: 3 attempts each would cost USD 0.0006195, and 2 requests have 0.001."""

    def unreadable(text: str) -> str:
        raise ValueError("never")

    model = bill(26, 100)
    asker = Asker(model, ReplyCache(tmp_path / "a.sqlite"), budget=Budget(0.001, PRICES), progress=False)
    with pytest.raises(BudgetReachedError, match=r"\b2 answers"):
        asker.ask(requests(2), unreadable)
    assert model.batches == [2, 2]


def test_a_server_without_token_counts_is_charged_by_the_estimate(tmp_path):
    model = bill(0, 0)
    budget = Budget(1.0, PRICES)
    asker = Asker(model, ReplyCache(tmp_path / "a.sqlite"), budget=budget, progress=False)
    asker.ask(requests(1), json.loads)
    assert budget.spent == pytest.approx(PRICES.cost(26, 23))  # the reply: 88 characters and two quotes
    assert (asker.usage.prompt_tokens, asker.usage.completion_tokens) == (26, 23)


@settings(max_examples=12)
@given(st.floats(0, 0.003), st.integers(1, 26), st.integers(0, 100))
def test_the_limit_is_never_exceeded(tmp_path_factory, limit, prompt, completion):
    budget = Budget(limit, PRICES)
    cache = ReplyCache(tmp_path_factory.mktemp("cache") / "a.sqlite")
    model = bill(prompt, completion)
    try:
        Asker(model, cache, budget=budget, progress=False).ask(requests(10), json.loads)
    except BudgetReachedError:
        assert budget.spent + 0.0002065 > limit * (1 - 1e-9)
    assert budget.spent <= limit * (1 + 1e-9)
    assert cache.count() == len(model.asked)
