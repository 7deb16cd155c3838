"""What calls cost: prices given by the user, an estimate before anything is sent, and a limit that is kept.

Tokens of a text that was not sent yet are estimated from its length, about 4 characters a token (bytes of UTF-8, so
that scripts with more tokens per character count more); a reply counts with its cap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atwu.judge.chat import ChatRequest

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_TURN = 4
"""What a chat template adds to a turn."""


class BudgetReached(RuntimeError):  # noqa: N818
    """Nothing more was sent, because it could have cost more than allowed."""

    def __init__(self, *, spent: float, limit: float, unjudged: int) -> None:
        self.spent, self.limit, self.unjudged = spent, limit, unjudged
        super().__init__(
            f"stopped before the limit of USD {limit:.4f} could be passed: USD {spent:.4f} spent, {unjudged} answers "
            f"still unjudged; everything paid for is stored; run again with a higher --max-cost to go on."
        )


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per million tokens, as the provider's price list says."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name, value in (("input", self.input), ("output", self.output)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} price must be 0 or more USD per million tokens, got {value}.")

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """USD for that many tokens."""
        return (self.input * prompt_tokens + self.output * completion_tokens) / 1e6


@dataclass(frozen=True, slots=True)
class Estimate:
    """What would be sent, and what it costs at most if every reply is as long as its cap and none is asked again."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None = None
    """None: no prices were given."""

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
        )

    def __str__(self) -> str:
        if not self.calls:
            return "nothing to send: every reply is stored"
        money = "price unknown, give prices" if self.usd is None else f"about USD {self.usd:.4f} at most"
        return (
            f"{self.calls:,} calls, about {self.prompt_tokens:,} prompt tokens (at {CHARACTERS_PER_TOKEN} characters a "
            f"token) and at most {self.completion_tokens:,} reply tokens: {money}"
        )


def text_tokens(text: str) -> int:
    """Estimated number of tokens of a text."""
    return math.ceil(len(text.encode(errors="replace")) / CHARACTERS_PER_TOKEN)


def prompt_tokens(request: ChatRequest) -> int:
    """Estimated number of tokens of a conversation."""
    return sum(text_tokens(message.content) + TOKENS_PER_TURN for message in request.messages)


def estimate(requests: Sequence[ChatRequest], prices: Prices | None) -> Estimate:
    """What it costs to send these requests once."""
    prompt, completion = sum(map(prompt_tokens, requests)), sum(request.max_tokens for request in requests)
    return Estimate(len(requests), prompt, completion, prices.cost(prompt, completion) if prices else None)


class Budget:
    """Money spent by this process, and how much may be sent next without passing the limit."""

    def __init__(self, max_cost: float | None = None, prices: Prices | None = None) -> None:
        """Start with nothing spent.

        Args:
            max_cost: limit in USD; None: no limit.
            prices: needed for a limit.
        """
        if max_cost is not None and prices is None:
            raise ValueError("max_cost needs prices; give the USD per million input and output tokens of the model.")
        if max_cost is not None and not (math.isfinite(max_cost) and max_cost >= 0):
            raise ValueError(f"max_cost must be 0 or more USD, got {max_cost}; None sets no limit.")
        self.max_cost = max_cost
        self.prices = prices
        self.spent = 0.0
        self._estimated = self._billed = 0

    def fitting(self, requests: Sequence[ChatRequest]) -> int:
        """How many of the requests, from the first on, can be sent and fit for sure."""
        if self.max_cost is None or self.prices is None:
            return len(requests)
        # Where a tokenizer needs more tokens than estimated, the replies so far tell by how much.
        scale = max(1.0, self._billed / self._estimated) if self._estimated else 1.0
        total = self.spent
        for number, request in enumerate(requests):
            total += self.prices.cost(scale * prompt_tokens(request), request.max_tokens)
            if total > self.max_cost * (1 + 1e-9):
                return number
        return len(requests)

    def add(self, request: ChatRequest, *, prompt: int, completion: int) -> None:
        """Book the tokens that were billed for a request."""
        if prompt:
            self._estimated += prompt_tokens(request)
            self._billed += prompt
        if self.prices is not None:
            self.spent += self.prices.cost(prompt, completion)
