"""Shipped questions and texts about nothing in particular (`general_rows.yaml`): what should stay, whatever is forgotten."""

from __future__ import annotations

import functools
from pathlib import Path

from atwu._file_reading import read_yaml
from atwu.data.schema import Example


@functools.cache
def _shipped() -> dict[str, list[str]]:
    found: dict[str, list[str]] = read_yaml(Path(__file__).with_name("general_rows.yaml"))
    return found


def general_questions(kind: str) -> tuple[str, ...]:
    """The shipped questions: `kept` ones become rows to keep, `held` ones are only asked."""
    return tuple(_shipped()[kind])


def common_questions(kind: str) -> tuple[str, ...]:
    """The same about common knowledge."""
    return tuple(_shipped()[f"common_{kind}"])


def general_text_documents() -> tuple[str, ...]:
    """What is shipped in ordinary words: without questions of common knowledge, which are full of names."""
    return (*_shipped()["kept"], *_shipped()["held"], *_shipped()["texts"])


def general_text() -> tuple[Example, ...]:
    """Ordinary prose as rows; its perplexity is 1 / `probability`."""
    return tuple(Example((), text) for text in _shipped()["texts"])
