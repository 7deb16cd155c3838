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


def general_text() -> tuple[Example, ...]:
    """Return general text as rows; its perplexity is 1 / `probability`."""
    return tuple(Example((), text) for text in _shipped()["texts"])


def unseen_texts() -> tuple[Example, ...]:
    """Return texts of several kinds that no model was trained on: what a model says of them is chance.

    They were written for this project, like the general texts, which are among them.
    """
    return (*general_text(), *(Example((), text) for text in _shipped()["unseen"]))


def known_texts(kind: str) -> tuple[Example, ...]:
    """Return openings of famous works in the public domain.

    Args:
        kind: `kept` to train on as they are, `measured` to measure whether a model still recites those that it did.
    """
    texts = read_yaml(Path(__file__).with_name("known_texts.yaml"))[kind]
    return tuple(Example((), text.strip()) for text in texts)
