"""What calls cost: prices given by the user, an estimate before anything is sent, and a limit that is kept.

Tokens of a text that was not sent yet are estimated from its length, about 4 characters a token (bytes of UTF-8, so
that scripts with more tokens per character count more); a reply counts with its cap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atwu.judge.chat_model import ChatRequest

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_TURN = 4
"""What a chat template adds to a turn."""


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
class CostEstimate:
    """What would be sent, and what it costs if every reply is as long as its cap and none is asked for again."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None = None
    """None: no prices were given."""

    def __add__(self, other: CostEstimate) -> CostEstimate:
        return CostEstimate(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
        )

    def __str__(self) -> str:
        if not self.calls:
            return "nothing to send: every reply is stored"
        size = (
            f"{self.calls:,} calls, about {self.prompt_tokens:,} prompt tokens (at {CHARACTERS_PER_TOKEN} characters a "
            f"token) and at most {self.completion_tokens:,} reply tokens: "
        )
        if self.usd is None:
            return size + "price unknown, give prices"
        return size + f"about USD {self.usd:.4f} if every reply is as long as its cap, retries not counted"


def text_tokens(text: str) -> int:
    """Estimated number of tokens of a text."""
    return math.ceil(len(text.encode(errors="replace")) / CHARACTERS_PER_TOKEN)


def prompt_tokens(request: ChatRequest) -> int:
    """Estimated number of tokens of a conversation."""
    return sum(text_tokens(message.content) + TOKENS_PER_TURN for message in request.messages)


def estimate_cost(requests: Sequence[ChatRequest], prices: Prices | None) -> CostEstimate:
    """What it costs to send these requests once."""
    prompt, completion = sum(map(prompt_tokens, requests)), sum(request.max_tokens for request in requests)
    return CostEstimate(len(requests), prompt, completion, prices.cost(prompt, completion) if prices else None)


class Budget:
    """Money spent by this process, and how much may be sent next without passing the limit."""

    def __init__(self, max_cost: float | None = None, prices: Prices | None = None) -> None:
        """Start with nothing spent."""
        if max_cost is not None and prices is None:
            raise ValueError("max_cost needs prices; give the USD per million input and output tokens of the model.")
        if max_cost is not None and not (math.isfinite(max_cost) and max_cost >= 0):
            raise ValueError(f"max_cost must be 0 or more USD, got {max_cost}; None sets no limit.")
        self.max_cost = max_cost
        self.prices = prices
        self.spent = 0.0
        self._estimated = self._billed = 0

    def affordable(self, requests: Sequence[ChatRequest]) -> int:
        """How many of the requests, from the first on, can be sent and fit for sure."""
        if self.max_cost is None:
            return len(requests)
        total = self.spent
        for number, request in enumerate(requests):
            total += self._most(request)
            if total > self.max_cost * (1 + 1e-9):
                return number
        return len(requests)

    def add(self, request: ChatRequest, *, prompt: int, completion: int) -> None:
        """Book what was billed for a request; without token counts, what it can have cost at most."""
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
        # Where a tokenizer needs more tokens than estimated, the replies so far tell by how much.
        scale = max(1.0, self._billed / self._estimated) if self._estimated else 1.0
        return self.prices.cost(scale * prompt_tokens(request), request.max_tokens)


class Usage:
    """Calls and tokens, the same however often the work was interrupted, but for `sent` against `stored` and for tries that
    gave no reply: they count where they were made, and in full if the server does not say what they cost."""

    def __init__(self, budget: Budget) -> None:
        self.sent = 0
        """Calls made now, failed ones included."""
        self.stored = 0
        """Calls answered from the store."""
        self.prompt_tokens = 0
        """Of all replies used, sent now or stored, each counted once, and of tries that may have been billed for nothing."""
        self.completion_tokens = 0
        """The same for the replies."""
        self._budget = budget
        self._used: set[str] = set()

    def add_reply(self, key: str, prompt: int, completion: int, *, stored: bool) -> None:
        """Count a reply, once."""
        if key not in self._used:
            self._used.add(key)
            self.stored += stored
            self._add(prompt, completion)

    def add_failed(self, request: ChatRequest, prompt: int, completion: int) -> None:
        """Count a try that gave nothing; without token counts, as much as it can have used."""
        if prompt or completion:
            self._add(prompt, completion)
        else:
            self._add(prompt_tokens(request), request.max_tokens)

    def _add(self, prompt: int, completion: int) -> None:
        self.prompt_tokens += prompt
        self.completion_tokens += completion

    @property
    def replies(self) -> int:
        """Distinct replies used, sent now or stored."""
        return len(self._used)

    @property
    def usd(self) -> float | None:
        """Price of these tokens; None: no prices were given."""
        prices = self._budget.prices
        return prices.cost(self.prompt_tokens, self.completion_tokens) if prices else None
