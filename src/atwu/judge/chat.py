"""The interface of a model that answers chats: one request in, one reply out. Prompted judges and paraphrasers use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from atwu.data.schema import Message


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


class ChatModel(Protocol):
    """Answers chats; a hosted or local server, or a model in this process."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Plain JSON that names everything about the model that can change a reply; no keys, no timeouts."""

    def complete(self, requests: Sequence[ChatRequest], on_reply: Callable[[int, Reply], None]) -> None:
        """Answer all requests, in any order.

        Args:
            requests: the conversations.
            on_reply: called once per request with its index and reply, in the calling thread, as soon as it is there.
        """
