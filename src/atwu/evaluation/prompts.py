"""What is generated from and what comes back: prompts, decoding settings, generations, and the backends' interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from atwu.data.schema import Message


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that ends with the user's turn, and the beginning of the answer if it is given."""

    messages: tuple[Message, ...]
    prefill: str = ""
    """Words the answer starts with; not part of the generated text."""
    draw: int = 0
    """Number of the sample; only matters at a temperature above 0, where it tells repeated draws apart."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How text is generated."""

    max_new_tokens: int = 64
    temperature: float = 0.0
    """0 is greedy."""
    seed: int = 0
    """Of the draws at a temperature above 0; each (seed, prompt, draw) has its own, whatever is in the batch."""
    stop: tuple[str, ...] = ()
    """The text is cut before the first of these."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}.")
        if self.temperature < 0:
            raise ValueError(f"temperature must be 0 (greedy) or more, got {self.temperature}.")


@dataclass(frozen=True, slots=True)
class Generation:
    """What a model said."""

    text: str
    """Without special tokens and white space around it."""
    tokens: int
    """Tokens generated for it, an end token included."""


class Generator(Protocol):
    """A model that continues prompts."""

    @property
    def identity(self) -> str:
        """Names everything about the model that can change a text: backend, weights, template, length limits."""

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Sequence[tuple[int, Generation]]], None]
    ) -> None:
        """Generate for all prompts, in any order.

        Args:
            prompts: distinct prompts.
            decoding: settings.
            on_done: called after every batch with (index, generation) pairs.
        """
