"""Requests to chat models and their replies, and rubrics: versioned instructions for judging, paraphrasing and annotation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._file_reading import read_yaml
from atwu.data.schema import Message

CUT_OFF = "the reply reached max_tokens before any text (reasoning models need a higher limit)"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    messages: tuple[Message, ...]
    max_tokens: int
    # Temperature and seed of the judge in the ATWU paper.
    temperature: float = 0.0
    seed: int = 42
    rubric: str = ""
    """Version of its rubric, if it has one; part of the cache's key."""
    schema: str = ""
    """JSON schema of the reply as text, for servers that can hold a model to it; belongs to the version of the rubric."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply; exactly one of `text` and `error` is set."""

    text: str | None = None
    error: str | None = None
    """Why there is no text; contains no secrets."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False
    """Whether it reached its token limit before any text; it was billed, and a retry would not help."""
    filtered: bool = False
    """Whether the server's content filter cut the text off."""


OnReply = Callable[[int, Reply], None]
"""Takes the index of a request and its reply; never called concurrently."""


@dataclass(frozen=True, slots=True)
class Rubric:
    version: str
    system: str
    template: str
    """`str.format` fields are those of the claim or pair, and `mark`, which occurs in none of them."""
    max_tokens: int
    schema: Mapping[str, Any]
    """JSON schema of the reply."""


_SHIPPED: dict[str, Any] = read_yaml(Path(__file__).with_name("rubrics.yaml"))


def _rubric(name: str) -> Rubric:
    fields = _SHIPPED[name]
    # Servers that hold a model to a schema want every key required and no others.
    properties = fields["schema"]
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return Rubric(**fields | {"system": fields["system"].replace("{data}", _SHIPPED["data"]), "schema": schema})


CORRECTNESS, PREFERENCE = _rubric("correctness"), _rubric("preference")
PARAPHRASE, SAME_QUESTION = _rubric("paraphrase"), _rubric("same_question")
ANNOTATION = _rubric("annotation")


def rubric_request(rubric: Rubric, fields: Mapping[str, Any], *, max_tokens: int | None = None) -> ChatRequest:
    """Fill in a rubric; braces in the values are kept.

    The mark of the tags is a hash of the texts, so equal texts give equal requests and no text can contain it.
    """
    texts = {name: str(value) for name, value in fields.items()}
    mark = short_hash([rubric.version, texts])[:8]
    while any(mark in text for text in texts.values()):
        mark = short_hash(mark)[:8]
    messages = (Message("system", rubric.system), Message("user", rubric.template.format_map({**texts, "mark": mark})))
    return ChatRequest(
        messages,
        max_tokens=max_tokens or rubric.max_tokens,
        rubric=rubric.version,
        schema=json.dumps(rubric.schema),
    )
