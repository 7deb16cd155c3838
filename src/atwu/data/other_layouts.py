"""Rows as other tools write them, translated to the columns of `atwu.data.row_parsing`.

| tool | columns | becomes |
|---|---|---|
| TRL, conversational | `prompt` and `completion` as lists of turns | `messages` |
| TRL, preference | `chosen` and `rejected`, with or without `prompt` | the chosen answer; the rejected one is ignored |
| ShareGPT | `conversations` of `from` and `value`, `system` | `messages` |
| Alpaca | `instruction`, `input`, `output`, `system` | `question` and `answer`, or `messages` |
| OpenAI | content as a list of text parts | their text |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SPEAKERS = {"human": "user", "gpt": "assistant", "bing": "assistant", "chatgpt": "assistant", "model": "assistant"}
"""Name of a speaker in ShareGPT's rows -> role; other names are roles already."""


def native_columns(obj: Mapping[str, Any], *, where: str) -> Mapping[str, Any]:
    """Translate a record of another tool; other records, and columns with other meanings, are returned unchanged.

    Args:
        obj: column name to value.
        where: location of the record, the prefix of error messages.

    Raises:
        ValueError: a turn has a part that is not text.
    """
    columns = dict(obj)
    if columns.get("chosen") is not None and columns.get("completion") is None:
        columns["completion"] = columns.pop("chosen")
        columns.pop("rejected", None)
        if columns.get("prompt") is None and _are_turns(columns["completion"]):
            columns["messages"] = columns.pop("completion")
    if _are_turns(columns.get("prompt")) or _are_turns(columns.get("completion")):
        asked, answered = (columns.pop(name, None) for name in ("prompt", "completion"))
        columns["messages"] = [*_turns(asked, "user"), *_turns(answered, "assistant")]
    if _are_turns(columns.get("conversations")):
        columns["messages"] = [_from_sharegpt(turn) for turn in columns.pop("conversations")]
    if columns.get("instruction") is not None and columns.get("output") is not None:
        given = (columns.pop("instruction"), columns.pop("input", None))
        columns["question"] = "\n\n".join(text for text in given if isinstance(text, str) and text) or given[0]
        columns["answer"] = columns.pop("output")
        if columns.get("system"):
            turns = (("user", columns.pop("question")), ("assistant", columns.pop("answer")))
            columns["messages"] = [{"role": role, "content": text} for role, text in turns]
    if _are_turns(columns.get("messages")):
        if isinstance(columns.get("system"), str) and columns["system"] and _role(columns["messages"][0]) != "system":
            columns["messages"] = [{"role": "system", "content": columns["system"]}, *columns["messages"]]
            columns.pop("system")
        columns["messages"] = [_as_text(turn, where) for turn in columns["messages"]]
    return columns


def _are_turns(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and isinstance(value[0], Mapping)


def _role(turn: Any) -> Any:
    return turn.get("role") if isinstance(turn, Mapping) else None


def _turns(value: Any, role: str) -> Sequence[Any]:
    """Return turns as they are, and a text as one turn."""
    return value if isinstance(value, list | tuple) else [{"role": role, "content": value}]


def _from_sharegpt(turn: Any) -> Any:
    if not isinstance(turn, Mapping) or "from" not in turn:
        return turn
    return {"role": _SPEAKERS.get(str(turn["from"]), turn["from"]), "content": turn.get("value")}


def _as_text(turn: Any, where: str) -> Any:
    """Join the text parts of a turn's content.

    Raises:
        ValueError: a part is an image, audio or a tool call.
    """
    if not isinstance(turn, Mapping) or not isinstance(turn.get("content"), list | tuple):
        return turn
    kinds = [part.get("type", "text") if isinstance(part, Mapping) else "text" for part in turn["content"]]
    if other := next((kind for kind in kinds if kind != "text"), None):
        raise ValueError(
            f"{where}, column 'messages': a part of type {other!r} is not text; only text can be unlearned."
        )
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in turn["content"]]
    return {**turn, "content": "".join(str(text) for text in texts if text is not None)}
