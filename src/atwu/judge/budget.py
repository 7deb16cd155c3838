"""Calls to a chat model: how many may be sent, how many a task would need, and what the used replies took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atwu.judge.chat_model import ChatRequest

CHARACTERS_PER_TOKEN = 4
"""Bytes of UTF-8 per token, by which tokens that no server has counted are estimated."""
TOKENS_PER_TURN = 4
"""Tokens that a chat template adds per turn."""


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """Number of calls and their tokens, if every reply reaches its token limit and none is repeated."""

    calls: int
    prompt_tokens: int
    completion_tokens: int

    def __add__(self, other: CallEstimate) -> CallEstimate:
        return CallEstimate(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    def __str__(self) -> str:
        if not self.calls:
            return "nothing to send: all replies are cached"
        return (
            f"{self.calls:,} calls, about {self.prompt_tokens:,} prompt tokens (at {CHARACTERS_PER_TOKEN} characters per "
            f"token) and at most {self.completion_tokens:,} reply tokens, without retries"
        )


def text_tokens(text: str) -> int:
    return math.ceil(len(text.encode(errors="replace")) / CHARACTERS_PER_TOKEN)


def prompt_tokens(request: ChatRequest) -> int:
    return sum(text_tokens(message.content) + TOKENS_PER_TURN for message in request.messages)


def estimate_calls(requests: Sequence[ChatRequest]) -> CallEstimate:
    """Estimate what it takes to send each request once."""
    prompt, completion = sum(map(prompt_tokens, requests)), sum(request.max_tokens for request in requests)
    return CallEstimate(len(requests), prompt, completion)


class Budget:
    """Calls sent by this process, and how many it may send."""

    def __init__(self, max_calls: int | None = None) -> None:
        if max_calls is not None and max_calls < 0:
            raise ValueError(f"max_calls must be 0 or more calls, got {max_calls}; None sets no limit.")
        self.max_calls = max_calls
        self.sent = 0

    def take(self, wanted: int) -> int:
        """Count calls that are about to be sent, and return how many of the wanted ones these are."""
        allowed = wanted
        if self.max_calls is not None:
            allowed = min(wanted, self.max_calls - self.sent)
        self.sent += allowed
        return allowed


class Usage:
    """Replies used, sent or from the cache, with their tokens; the counts do not depend on interruptions."""

    def __init__(self) -> None:
        self.prompt_tokens = self.completion_tokens = 0
        self._used: set[str] = set()

    def add_reply(self, key: str, prompt: int, completion: int) -> None:
        """Count a reply, once per key."""
        if key not in self._used:
            self._used.add(key)
            self.prompt_tokens += prompt
            self.completion_tokens += completion

    @property
    def replies(self) -> int:
        return len(self._used)
