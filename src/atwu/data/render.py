"""A row as one text, with the place of the answer in it.

Conversations go through the tokenizer's chat template, or through "Question: ...\\nAnswer: ..." when there is none;
plain text rows are their own text. No tokens here: `atwu.data.encode` cuts the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from atwu.data.schema import Example, Message

TEMPLATE_DATE = "10 Apr 2025"
"""Given to templates that print today's date (Llama-3), so that the same rows give the same ids on any day. The date is
the one the published TOFU models were trained with."""

_REMEDY = "set tokenizer.chat_template to another one, or to None for the plain form (Question: ... Answer: ...)"


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """The text of a row and where the answer stands in it (character positions)."""

    text: str
    boundary: int
    """Where the answer's part begins: `start`, or the spaces right before it, which its first token may absorb."""
    start: int
    """First character of the answer."""
    end: int
    """One past the last character of the answer."""
    trimmed: int
    """Characters the template stripped from the left of the answer, so `text[start]` is `answer[trimmed]`."""


def with_system(messages: tuple[Message, ...], system: str | None) -> tuple[Message, ...]:
    """The turns with a system turn in front, unless they have one; no turns (a plain text row) stay none."""
    if system is None or not messages or messages[0].role == "system":
        return messages
    return (Message("system", system), *messages)


def check_system(system: str | None) -> None:
    """Refuse a system turn without text.

    Raises:
        ValueError: it is empty.
    """
    if system is not None and not system.strip():
        raise ValueError("system is empty; give the text of the system turn, or None for no such turn.")


def render_row(example: Example, tokenizer: Any, *, system: str | None = None) -> RenderedRow:
    """Write a row as text.

    Args:
        example: the row.
        tokenizer: its chat template is used, if it has one.
        system: text of a system turn for conversations that have none.

    Returns:
        The text with the answer's position.

    Raises:
        ValueError: the chat template refuses the turns, leaves a system turn out, or changes the answer beyond stripping it.
    """
    if not example.messages:
        return RenderedRow(text=example.answer, boundary=0, start=0, end=len(example.answer), trimmed=0)
    example = replace(example, messages=with_system(example.messages, system))
    if not tokenizer.chat_template:
        head = f"{_plain_prompt(example.messages)} "
        return _placed(head, example.answer, tail="", trimmed=0)
    # A marker in the answer's place shows what the template writes before and after it, whatever the answer says.
    marker = "ATWU-ANSWER"
    while any(marker in message.content for message in example.messages):
        marker += "-X"
    marked = _apply(example.messages, marker, tokenizer)
    head, found, tail = marked.partition(marker)
    if not found or marker in tail:
        raise ValueError(
            f"the chat template writes the last assistant turn {marked.count(marker)} times instead of once; {_REMEDY}."
        )
    first = example.messages[0]
    if first.role == "system" and first.content.strip() not in head:
        raise ValueError(f"the chat template leaves the system turn out; do without one, or {_REMEDY}.")
    text = _apply(example.messages, example.answer, tokenizer)
    written = text[len(head) : len(text) - len(tail)]
    if not text.startswith(head) or not text.endswith(tail) or written.strip() != example.answer.strip():
        raise ValueError(
            f"the chat template changes the answer {example.answer[:60]!r} beyond stripping spaces around it; {_REMEDY}."
        )
    return _placed(head, written, tail, trimmed=example.answer.find(written))


def _placed(head: str, answer: str, tail: str, trimmed: int) -> RenderedRow:
    start = len(head)
    return RenderedRow(
        text=head + answer + tail,
        boundary=len(head.rstrip(" ")),
        start=start,
        end=start + len(answer),
        trimmed=trimmed,
    )


def _plain_prompt(messages: Sequence[Message]) -> str:
    lead = {"system": "", "user": "Question: ", "assistant": "Answer: "}
    lines = []
    for previous, message in zip([None, *messages], messages, strict=False):
        if previous is not None:
            lines.append("\n" if message.role == "assistant" and previous.role == "user" else "\n\n")
        lines.append(lead[message.role] + message.content)
    return "".join(lines) + "\nAnswer:"


def _apply(messages: Sequence[Message], answer: str, tokenizer: Any) -> str:
    from jinja2 import TemplateError

    turns = [{"role": message.role, "content": message.content} for message in messages]
    turns.append({"role": "assistant", "content": answer})
    try:
        text: str = tokenizer.apply_chat_template(turns, tokenize=False, date_string=TEMPLATE_DATE)
    except TemplateError as error:
        roles = ", ".join(turn["role"] for turn in turns)
        raise ValueError(
            f"the chat template refuses the turns ({roles}): {error}; change the turns, or {_REMEDY}."
        ) from error
    return text
