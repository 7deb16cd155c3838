"""Cost of calls in USD: prices given by the user, estimates before anything is sent, and a limit that `asker.py` keeps.

Tokens of unsent texts are estimated at 4 bytes of UTF-8 per token; a reply counts with its token limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atwu.judge.chat_model import ChatRequest

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_TURN = 4
"""Tokens that a chat template adds per turn."""


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per million tokens, as in the provider's price list."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name, value in (("input", self.input), ("output", self.output)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} price must be 0 or more USD per million tokens, got {value}.")

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        return (self.input * prompt_tokens + self.output * completion_tokens) / 1e6


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Number of calls and their cost, if every reply reaches its token limit and none is repeated."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None = None

    def __add__(self, other: CostEstimate) -> CostEstimate:
        return CostEstimate(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
        )

    def __str__(self) -> str:
        if not self.calls:
            return "nothing to send: all replies are cached"
        size = (
            f"{self.calls:,} calls, about {self.prompt_tokens:,} prompt tokens (at {CHARACTERS_PER_TOKEN} characters per "
            f"token) and at most {self.completion_tokens:,} reply tokens: "
        )
        if self.usd is None:
            return size + "price unknown (give --judge-price)"
        return size + f"about USD {self.usd:.4f} if every reply reaches its token limit, without retries"


def text_tokens(text: str) -> int:
    return math.ceil(len(text.encode(errors="replace")) / CHARACTERS_PER_TOKEN)


def prompt_tokens(request: ChatRequest) -> int:
    return sum(text_tokens(message.content) + TOKENS_PER_TURN for message in request.messages)


def estimate_cost(requests: Sequence[ChatRequest], prices: Prices | None) -> CostEstimate:
    """Estimate the cost of sending each request once."""
    prompt, completion = sum(map(prompt_tokens, requests)), sum(request.max_tokens for request in requests)
    return CostEstimate(len(requests), prompt, completion, prices.cost(prompt, completion) if prices else None)


class Budget:
    """Money spent by this process, and how much more may be sent."""

    def __init__(self, max_cost: float | None = None, prices: Prices | None = None) -> None:
        if max_cost is not None and prices is None:
            raise ValueError(
                "max_cost needs prices; give the USD per million input and output tokens, such as --judge-price 0.25,2."
            )
        if max_cost is not None and not (math.isfinite(max_cost) and max_cost >= 0):
            raise ValueError(f"max_cost must be 0 or more USD, got {max_cost}; None sets no limit.")
        self.max_cost = max_cost
        self.prices = prices
        self.spent = 0.0
        self._estimated = self._billed = 0

    def affordable(self, requests: Sequence[ChatRequest]) -> int:
        """Return how many of the requests, from the first on, certainly fit the budget."""
        if self.max_cost is None:
            return len(requests)
        total = self.spent
        for number, request in enumerate(requests):
            total += self._most(request)
            if total > self.max_cost * (1 + 1e-9):
                return number
        return len(requests)

    def add(self, request: ChatRequest, *, prompt: int, completion: int) -> None:
        """Book the billed tokens of a request; without token counts, its maximum cost."""
        if not prompt and not completion:
            self.spent += self._most(request)
            return
        if prompt:
            self._estimated += prompt_tokens(request)
            self._billed += prompt
        if self.prices is not None:
            self.spent += self.prices.cost(prompt, completion)

    def _most(self, request: ChatRequest) -> float:
        if self.prices is None:
            return 0.0
        # If the tokenizer needs more tokens than estimated, scale by the ratio observed so far.
        scale = max(1.0, self._billed / self._estimated) if self._estimated else 1.0
        return self.prices.cost(scale * prompt_tokens(request), request.max_tokens)


class Usage:
    """Replies used, sent or from the cache, with their tokens and those of failed attempts that may have been billed.

    The counts do not depend on interruptions, apart from failed attempts, which count where they were made (in full if the
    server does not report tokens).
    """

    def __init__(self, prices: Prices | None) -> None:
        self.prompt_tokens = self.completion_tokens = 0
        self._prices = prices
        self._used: set[str] = set()

    def add_reply(self, key: str, prompt: int, completion: int) -> None:
        """Count a reply, once per key."""
        if key not in self._used:
            self._used.add(key)
            self.prompt_tokens += prompt
            self.completion_tokens += completion

    def add_failed(self, request: ChatRequest, prompt: int, completion: int) -> None:
        """Count a failed attempt; without token counts, its maximum."""
        if not prompt and not completion:
            prompt, completion = prompt_tokens(request), request.max_tokens
        self.prompt_tokens += prompt
        self.completion_tokens += completion

    @property
    def replies(self) -> int:
        return len(self._used)

    @property
    def usd(self) -> float | None:
        return self._prices.cost(self.prompt_tokens, self.completion_tokens) if self._prices else None
