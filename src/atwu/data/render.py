"""Render a row as text and locate the answer in it.

Conversations use the tokenizer's chat template, or "Question: ...\\nAnswer: ..." without one; plain text rows are used
unchanged. `atwu.data.encode` tokenizes the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from atwu.data.schema import Example, Message

TEMPLATE_DATE = "10 Apr 2025"
"""Date for chat templates that print the current date, as `date_string` (Llama-3) or `strftime_now(...)`, so that token ids do
not depend on the day. The published TOFU models were trained with this date."""
_TEMPLATE_DAY = datetime.strptime(TEMPLATE_DATE, "%d %b %Y")
_TODAY = re.compile(r"""\bstrftime_now\(\s*(?:format\s*=\s*)?(?:"([^"]*)"|'([^']*)')\s*\)""")

OPEN, CLOSE = "<think>", "</think>"
"""Marks of the thoughts of reasoning models before an answer."""
_TAG = "(?:seed:)?(?:think|thinking|thoughts?|reasoning)"
_OPENING = rf"(?:[<◁]{_TAG}[>▷]|\[THINK\]|<\|channel\|>analysis|<\|channel>thought)"
_OPENED = re.compile(rf"\s*{_OPENING}")
_CLOSED = re.compile(rf".*(?:[<◁]/{_TAG}[>▷]|\[/THINK\]|<\|channel\|>final<\|message\|>|<channel\|>)", re.DOTALL)
"""The same as different models write them, and everything up to their end."""
_ENDS_IN_THOUGHTS = re.compile(rf"{OPEN}\s*({CLOSE}\s*)?$")
"""Empty thoughts, or their beginning, at the end of a prompt."""
_AFTER_OPENING = {"<|channel|>analysis": "<|message|>"}
"""What stands between an opening mark and the thoughts of gpt-oss."""
PLAIN_QUESTION, PLAIN_ANSWER = "Question: ", "Answer: "
"""What a question and an answer begin with in the plain form."""
NEXT_TURN = re.compile(rf"\n{PLAIN_QUESTION.strip()}|(?<=\S)\s*\n{PLAIN_ANSWER.strip()}")
"""Where an answer in the plain form ends: at another question, or at the answer once more."""
_REMEDY = (
    "correct it (chat_template.jinja or tokenizer_config.json), give another (--chat-template FILE), or set "
    "tokenizer.chat_template to None for the plain form (Question: ... Answer: ...)"
)


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """The text of a row and the character positions of the answer."""

    text: str
    boundary: int
    """Start of the answer including spaces directly before it, which its first token may contain."""
    start: int
    end: int
    """One past the last character of the answer."""
    trimmed: int
    """Number of characters the template stripped from the left of the answer: `text[start]` is `answer[trimmed]`."""


def with_system(messages: tuple[Message, ...], system: str | None) -> tuple[Message, ...]:
    """Prepend a system turn unless there is one; a plain text row (no turns) is returned unchanged."""
    if system is None or not messages or messages[0].role == "system":
        return messages
    return (Message("system", system), *messages)


def merged_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Put the text of a system turn into the user's turn after it, for chat templates that reject system turns."""
    if [turn.role for turn in messages[:2]] != ["system", "user"]:
        return messages
    system, user, *others = messages
    return (Message("user", f"{system.content}\n\n{user.content}"), *others)


def check_system(system: str | None) -> None:
    if system is not None and not system.strip():
        raise ValueError("system is empty; pass the text of the system turn, or None for no system turn.")


def render_row(example: Example, tokenizer: Any, *, system: str | None = None) -> RenderedRow:
    """Render a row as text.

    A system turn that the template refuses or drops becomes the beginning of the first user turn. Thoughts in the answer
    stay as given, also if the template would rewrite them.

    Raises:
        ValueError: the chat template rejects the turns, or changes the answer beyond stripping spaces.
    """
    if not example.messages:
        return RenderedRow(text=example.answer, boundary=0, start=0, end=len(example.answer), trimmed=0)
    example = replace(example, messages=with_system(example.messages, system))
    if not tokenizer.chat_template:
        head = f"{_plain_prompt(example.messages)} "
        return _placed(head, example.answer, tail="", trimmed=0)
    try:
        return _in_template(example, tokenizer)
    except ValueError:
        if example.messages[0].role != "system":
            raise
    return _in_template(replace(example, messages=merged_system(example.messages)), tokenizer)


def _in_template(example: Example, tokenizer: Any) -> RenderedRow:
    """Render a conversation with the chat template; `ValueError` if it drops the system turn or changes the answer."""
    # A marker in place of the answer shows what the template writes before and after any answer.
    marker = "ATWU-ANSWER"
    # A question may contain the marker, as in a row about this package.
    while any(marker in message.content for message in example.messages):
        marker += "-X"
    marked = _apply(example.messages, marker, tokenizer)
    head, written_once, tail = marked.partition(marker)
    if not written_once or marker in tail:
        raise ValueError(
            f"the chat template{_of_template(tokenizer)} writes the last assistant turn {marked.count(marker)} times instead "
            f"of once; {_REMEDY}."
        )
    # Some templates drop a system turn without a word; the model would be trained on other prompts than it is asked.
    first = example.messages[0]
    if first.role == "system" and first.content.strip() not in head:
        raise ValueError(f"the chat template drops the system turn; remove the system turn, or {_REMEDY}.")
    try:
        text = _apply(example.messages, example.answer, tokenizer)
    except ValueError:
        if not starts_with_thoughts(example.answer):
            raise
        text = ""  # a template that takes thoughts in a field of their own only, as that of gpt-oss
    # What the template made of the answer, usually the answer without the spaces around it.
    written = text[len(head) : len(text) - len(tail)]
    if starts_with_thoughts(example.answer) and (
        written.strip() != example.answer.strip() or _ENDS_IN_THOUGHTS.search(head)
    ):
        # The template rewrites thoughts, or writes its own before the answer.
        prompt = _apply(example.messages, None, tokenizer)
        return _placed(_ENDS_IN_THOUGHTS.sub("", prompt), example.answer, tail, trimmed=0)
    if not text.startswith(head) or not text.endswith(tail) or written.strip() != example.answer.strip():
        raise ValueError(
            f"the chat template changes the answer {example.answer[:60]!r} beyond stripping surrounding spaces; {_REMEDY}."
        )
    return _placed(head, written, tail, trimmed=example.answer.find(written))


def of_tokenizer(tokenizer: Any) -> str:
    """Return the words ` of FOLDER` for a tokenizer that was loaded from one, for errors."""
    name = getattr(tokenizer, "name_or_path", "")
    if not name:
        return ""
    return f" of {name}"


def _of_template(tokenizer: Any) -> str:
    """Return where the chat template is from: the user's file, or the tokenizer's folder."""
    file = getattr(tokenizer, "chat_template_source", None)
    if file:
        return f" {file}"
    return of_tokenizer(tokenizer)


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
    lead = {"system": "", "user": PLAIN_QUESTION, "assistant": PLAIN_ANSWER}
    text = ""
    role = None
    for message in messages:
        # A question and its answer stand together.
        if role == "user" and message.role == "assistant":
            text += "\n"
        elif role is not None:
            text += "\n\n"
        role = message.role
        text += lead[role] + message.content
    return f"{text}\n{PLAIN_ANSWER.strip()}"


def _apply(messages: Sequence[Message], answer: str | None, tokenizer: Any) -> str:
    """Render turns with the answer, or without it as the prompt of generation."""
    turns = [{"role": message.role, "content": message.content} for message in messages]
    if answer is not None:
        turns.append({"role": "assistant", "content": answer})
    try:
        # transformers takes no other function than its own for the current date, so its calls are replaced by their text.
        template = _TODAY.sub(
            lambda call: repr(_TEMPLATE_DAY.strftime(call[1] or call[2] or "")), tokenizer.get_chat_template()
        )
        if "strftime_now(" in template:
            raise ValueError("it calls strftime_now with a computed format, so that token ids would depend on the day")
        text: str = tokenizer.apply_chat_template(
            turns,
            tokenize=False,
            add_generation_prompt=answer is None,
            chat_template=template,
            date_string=TEMPLATE_DATE,
        )
    except Exception as error:  # a template is a program: Jinja's errors, TypeError, RecursionError, MemoryError
        roles = ", ".join(turn["role"] for turn in turns)
        reason = str(error).rstrip(".") or type(error).__name__
        raise ValueError(
            f"the chat template{_of_template(tokenizer)} rejects the turns ({roles}): {reason}; change the turns, or {_REMEDY}."
        ) from error
    return text


def without_next_turn(text: str, tokenizer: Any) -> str:
    """Return a generated text up to the next turn that the model invents; chat templates have a token that ends an answer."""
    if tokenizer.chat_template:
        return text
    return NEXT_TURN.split(text, maxsplit=1)[0]


def prompt_opens_thoughts(tokenizer: Any) -> bool:
    """Return whether the chat template ends a prompt with the opening mark of thoughts, as for reasoning models."""
    if not tokenizer.chat_template:
        return False
    try:
        return _apply((Message("user", "Hello?"),), None, tokenizer).rstrip().endswith(OPEN)
    except ValueError:  # a template that needs other turns
        return False


def opening_of_thoughts(tokenizer: Any) -> str | None:
    """Return what the thoughts of a model begin with, as its chat template writes it; None for a model that does not think."""
    template = tokenizer.chat_template or ""
    if isinstance(template, dict):  # several, of which the default one writes prompts
        template = template.get("default", "")
    opening = re.search(_OPENING, template)
    if opening is None:
        return None
    return opening[0] + _AFTER_OPENING.get(opening[0], "")


def starts_with_thoughts(text: str) -> bool:
    """Return whether a text begins with thoughts, closed or not."""
    return _OPENED.match(text) is not None


def without_thoughts(text: str) -> str | None:
    """Return the answer after the thoughts, whose opening tag a prompt or a server may have taken; None if they do not end."""
    closed = _CLOSED.match(text)
    if closed is not None:
        return text[closed.end() :].strip()
    if starts_with_thoughts(text):
        return None
    return text
