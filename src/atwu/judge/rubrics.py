"""Rubrics: versioned instructions for judges, paraphrasing and annotation (`rubrics.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml


@dataclass(frozen=True, slots=True)
class Rubric:
    """A system prompt and a template of the user's turn."""

    version: str
    system: str
    template: str
    """`str.format` fields are those of the claim or pair, and `mark`, which occurs in none of them."""
    max_tokens: int
    """Token limit of the reply."""


_SHIPPED: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))


def _rubric(name: str) -> Rubric:
    found = _SHIPPED[name]
    return Rubric(**found | {"system": found["system"].replace("{data}", _SHIPPED["data"])})


CORRECTNESS, PREFERENCE = _rubric("correctness"), _rubric("preference")
PARAPHRASE, SAME_QUESTION = _rubric("paraphrase"), _rubric("same_question")
ANNOTATION = _rubric("annotation")
