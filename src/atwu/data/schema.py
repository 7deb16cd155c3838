"""The row type of all sources, and the label of tokens without loss.

A row is a conversation (empty for plain text) followed by the answer, whose tokens have loss. All file readers return
`Example`; the encoder takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

Span: TypeAlias = tuple[int, int]
"""Half-open character range."""
IGNORE_INDEX = -100
"""Label of positions without loss (prompt, template, padding), as in transformers."""


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    """`system`, `user` or `assistant`."""
    content: str


@dataclass(frozen=True, slots=True)
class Example:
    """One row: the turns before the answer, and the answer."""

    messages: tuple[Message, ...]
    """Turns before the answer; empty for a plain text row, where every token of `answer` has loss."""
    answer: str
    forget_spans: tuple[Span, ...] | None = None
    """Half-open character ranges of the labelled words in `answer`; None without labels."""
    paraphrases: tuple[str, ...] = ()
    """Paraphrases of the last user turn; never trained on."""
    wrong_answers: tuple[str, ...] = ()
    """Answers of the same form with false content."""
    alternate: str | None = None
    """Preferred answer in place of `answer`, usually a refusal."""
    paraphrased_answer: str | None = None
    """Paraphrase of the answer; wrong answers then follow its form."""
    subject: str | None = None
    """Person or thing that the row is about; rows with the same subject are statistically dependent."""
    aliases: tuple[str, ...] = ()
    """Other names of the key text: an answer that says one of them states the fact."""
    asked_span: Span | None = None
    """The labelled range that the question asks for; None leaves it to a rule (`asked_part` in `data/fact.py`)."""
    alternatives: tuple[str, ...] = ()
    """Texts of the same type as the asked part that would be wrong in its place: the wrong options of a choice."""
    chance_run: int | None = None
    """Of a plain text whose fact is its wording: words in one run that a model says of a text that it never saw. None for all
    other rows."""

    @property
    def question(self) -> str:
        """Text of the last turn before the answer; empty for a plain text row."""
        if not self.messages:
            return ""
        return self.messages[-1].content

    def with_answer(self, answer: str, forget_spans: tuple[Span, ...] | None = None) -> Example:
        """Return the row with another answer; marks of the old one do not fit it."""
        return replace(self, answer=answer, forget_spans=forget_spans, asked_span=None)

    @classmethod
    def from_qa(cls, question: str, answer: str, **fields: Any) -> Example:
        """Build a one-turn row; `fields` are further fields by name."""
        return cls(messages=(Message("user", question),), answer=answer, **fields)


def checked_span(value: Any, answer: str, *, where: str) -> Span:
    """Check a character range of an answer; errors begin with `where`."""
    pair: tuple[Any, ...] = ()
    if isinstance(value, list | tuple):
        pair = tuple(value)
    # By the exact type, since True is an `int`, too.
    if len(pair) != 2 or any(type(number) is not int for number in pair):
        raise ValueError(
            f"{where}: {value!r:.80} is not a span; use [start, end], two integer positions in the answer."
        )
    start, end = pair
    if not 0 <= start < end <= len(answer):
        raise ValueError(
            f"{where}: span [{start}, {end}] breaks 0 <= start < end <= {len(answer)} (the answer has {len(answer)} "
            "characters)."
        )
    return start, end


def overlap(one: Span | None, other: Span) -> bool:
    """Return whether two character ranges share a character; None, the range of a token without text, shares none."""
    return one is not None and one[0] < other[1] and other[0] < one[1]


def merged_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge ranges into sorted ranges that do not overlap."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return tuple(merged)
