"""The interface of a model that answers chats: one request in, one reply out. Prompted judges and paraphrasers use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from atwu.data.schema import Message

CUT_OFF = "the reply reached max_tokens before any text (a reasoning model? raise the cap on the reply)"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One conversation to be answered."""

    messages: tuple[Message, ...]
    max_tokens: int
    """Cap on the reply."""
    temperature: float = 0.0
    seed: int = 42


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; exactly one of text and error is set."""

    text: str | None = None
    error: str | None = None
    """Why there is no text, in words, without secrets."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False
    """Whether it ended at its cap before any text: paid for, and no better if asked for again."""
    served: Mapping[str, Any] = field(default_factory=dict)
    """What the server named otherwise than it was asked: model, system_fingerprint, parameters it did not take."""


class FailedAttempt(NamedTuple):
    """A try that may have been charged for although it gave nothing."""

    prompt_tokens: int
    """0 where the server did not say."""
    completion_tokens: int
    will_retry: bool
    """Whether it would be sent again."""


OnReply = Callable[[int, Reply], None]
OnFailedAttempt = Callable[[int, FailedAttempt], bool]


class ChatModel(Protocol):
    """Answers chats; a hosted or local server, or a model in this process."""

    concurrency: int
    """Most requests in flight at once."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Plain JSON that names everything about the model that can change a reply; no keys, no timeouts."""

    def complete(
        self, requests: Sequence[ChatRequest], on_reply: OnReply, on_failed_attempt: OnFailedAttempt = lambda index, attempt: True
    ) -> None:
        """Answer all requests, in any order.

        Args:
            requests: the conversations.
            on_reply: called once per request with its index and reply, as soon as it is there; one call at a time.
            on_failed_attempt: called after every try that may have been charged for and gave nothing; returns whether the request
                may be sent again.
        """
