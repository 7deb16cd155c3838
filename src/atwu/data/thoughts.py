"""Thoughts of reasoning models: the text in `<think>...</think>` before an answer."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def starts_with_thoughts(text: str) -> bool:
    """Return whether a text begins with thoughts, closed or not."""
    return text.lstrip().startswith(OPEN)


def without_thoughts(text: str) -> str | None:
    """Return the answer after the thoughts, whose opening tag a prompt or a server may have taken; None if they do not end."""
    _, closed, rest = text.rpartition(CLOSE)
    if closed:
        return rest.strip()
    return None if starts_with_thoughts(text) else text
