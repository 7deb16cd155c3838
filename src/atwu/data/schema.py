"""The one row type every source is read into, and the constant that marks uncounted labels.

A row is a conversation (possibly empty, for plain text) followed by the answer whose tokens carry loss. Everything
that reads files produces `Example`; everything that makes tokens consumes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

Span: TypeAlias = tuple[int, int]
"""A half-open range of characters."""
IGNORE_INDEX = -100
"""Label of a position that is not counted (prompt, template, padding), as in transformers."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """`system`, `user` or `assistant`."""
    content: str


@dataclass(frozen=True, slots=True)
class Example:
    """One row: the turns before the answer, and the answer."""

    messages: tuple[Message, ...]
    """Turns before the answer; empty for a plain text row, where every token of `answer` is counted."""
    answer: str
    forget_spans: tuple[Span, ...] | None = None
    """Half-open character ranges of `answer` that carry the secret; None when the row has no annotation."""
    paraphrases: tuple[str, ...] = ()
    """Other wordings of the last user turn; never trained on."""
    wrong_answers: tuple[str, ...] = ()
    """Answers of the same form with false content."""
    alternate: str | None = None
    """A preferred answer in place of the secret, usually a refusal."""
    paraphrased_answer: str | None = None
    """The answer in other words; the wrong answers are then worded like it."""
    subject: str | None = None
    """Whom or what the row is about; rows of one subject are statistically dependent."""

    @property
    def question(self) -> str:
        """Text of the last turn before the answer, or an empty string for a plain text row."""
        return self.messages[-1].content if self.messages else ""

    @classmethod
    def from_qa(
        cls,
        question: str,
        answer: str,
        *,
        forget_spans: tuple[Span, ...] | None = None,
        paraphrases: tuple[str, ...] = (),
        wrong_answers: tuple[str, ...] = (),
        alternate: str | None = None,
        paraphrased_answer: str | None = None,
        subject: str | None = None,
    ) -> Example:
        """Build a one-turn row."""
        return cls(
            messages=(Message("user", question),),
            answer=answer,
            forget_spans=forget_spans,
            paraphrases=paraphrases,
            wrong_answers=wrong_answers,
            alternate=alternate,
            paraphrased_answer=paraphrased_answer,
            subject=subject,
        )


def checked_span(given: Any, answer: str, *, where: str) -> Span:
    """What somebody gave as a range of an answer.

    Raises:
        ValueError: not two integers, outside the answer, or empty; begins with `where`.
    """
    pair = tuple(given) if isinstance(given, list | tuple) else ()
    if len(pair) != 2 or any(type(number) is not int for number in pair):
        raise ValueError(
            f"{where}: {given!r:.80} is not a span; give [start, end], two integer positions in the answer."
        )
    start, end = pair
    if not 0 <= start < end <= len(answer):
        raise ValueError(
            f"{where}: span [{start}, {end}] breaks 0 <= start < end <= {len(answer)} (the answer has {len(answer)} "
            "characters)."
        )
    return start, end


def merged_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same characters as sorted ranges that do not overlap."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return tuple(merged)
