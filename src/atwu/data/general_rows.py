"""General questions and texts shipped with the package (`general_rows.yaml`), to measure retained general ability."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml
from atwu.data.schema import Example


@functools.cache
def _shipped() -> Any:
    return read_yaml(Path(__file__).with_name("general_rows.yaml"))


def general_questions(kind: str) -> tuple[str, ...]:
    """Return general questions: those of kind `kept` become retain rows, those of kind `held` are only used for
    evaluation."""
    return tuple(_shipped()[kind])


def common_questions(kind: str) -> tuple[str, ...]:
    return tuple(_shipped()[f"common_{kind}"])


def general_text_documents() -> tuple[str, ...]:
    """Return general texts and questions, without questions about common knowledge, which contain many names."""
    return (*_shipped()["kept"], *_shipped()["held"], *_shipped()["texts"])


def general_text() -> tuple[Example, ...]:
    """Return general text as rows; its perplexity is 1 / `probability`."""
    return tuple(Example((), text) for text in _shipped()["texts"])
