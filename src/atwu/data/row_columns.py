"""Columns of a row: their names, mappings that the user gives, and the layouts of other tools.

A mapping is written behind the name of its source (`faq.csv:question=prompt`), so records and commands that repeat a run
read the same rows. Rows as other tools write them are translated:

| tool | columns | becomes |
|---|---|---|
| TRL, conversational | `prompt` and `completion` as lists of turns | `messages` |
| TRL, preference | `chosen` and `rejected`, with or without `prompt` | the chosen answer; the rejected one is ignored |
| ShareGPT | `conversations` (or `messages`) of `from` and `value`, `system` | `messages` |
| Alpaca | `instruction`, `input`, `output`, `system` | `question` and `answer`, or `messages` |
| OpenAI | content as a list of text parts | their text |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from atwu._file_reading import parse_json
from atwu._names import did_you_mean

COLUMN_LAYOUTS: tuple[tuple[str, ...], ...] = (
    ("question", "answer"),
    ("prompt", "completion"),
    ("messages",),
    ("text",),
)
"""Columns of prompt and answer; a row uses exactly one of these groups."""
_REQUIRED = tuple(name for layout in COLUMN_LAYOUTS for name in layout)
ROW_FIELDS = (
    *_REQUIRED,
    "forget_spans",
    "target_words",
    "paraphrases",
    "paraphrased_question",
    "wrong_answers",
    "perturbed_answer",
    "alternate",
    "paraphrased_answer",
    "subject",
    "aliases",
    "asked_span",
    "alternatives",
    "chance_run",
)
ASKED_COLUMNS = frozenset(
    (
        *("agreement", "askings", "probability", "source", "compared_answer", "compared_agreement"),
        *("recited_share", "rouge_l", "longest_run"),
    )
)
"""Columns that `atwu ask` writes beside a row."""
_MAPPED = re.compile(r"(.+?):(\w+\s*=.*)", re.DOTALL)
_SPEAKERS = {"human": "user", "gpt": "assistant", "bing": "assistant", "chatgpt": "assistant", "model": "assistant"}
_SPEAKERS |= {role: role for role in ("system", "user", "assistant")} | {"developer": "system"}
"""Name of a speaker in rows of other tools, in lower case -> role."""
_OF_TURNS = ("prompt", "completion", "chosen", "conversations", "messages")
_TURNS = re.compile(r"""\s*\[\s*\{\s*["'](role|from|content|value)["']\s*:""")
"""Beginning of turns in a text."""
_TEXT_PARTS = (None, "text", "input_text", "output_text")
"""Types of the parts of a content that are text."""


def parse_columns(text: str) -> dict[str, str]:
    """Parse a mapping, field -> column of the file."""
    parts = [part.partition("=") for part in re.split(r",(?=\s*\w+\s*=)", text)]
    columns = {field.strip(): column.strip() for field, _, column in parts}
    if len(columns) != len(parts) or not all(columns.values()):
        raise ValueError(
            f"columns {text!r} must be FIELD=COLUMN pairs of different fields, as in question=prompt,answer=completion."
        )
    for field in columns:
        if field not in ROW_FIELDS:
            hint = did_you_mean(field, ROW_FIELDS, f" Fields are {', '.join(ROW_FIELDS)}.")
            raise ValueError(f"columns {text!r}: a row has no field {field!r}.{hint}")
    return columns


def columns_text(columns: Mapping[str, str]) -> str:
    """Return a mapping as text; `parse_columns` reads it back."""
    return ",".join(f"{field}={column}" for field, column in columns.items())


def split_columns(source: str) -> tuple[str, dict[str, str]]:
    """Split the name of a source into the name without mapping, and the mapping."""
    mapped = _MAPPED.fullmatch(source)
    if mapped is None:
        return source, {}
    return mapped[1], parse_columns(mapped[2])


def mapped_record(obj: Mapping[str, Any], columns: Mapping[str, str], *, where: str) -> Mapping[str, Any]:
    """Return a record with its columns renamed to fields, without spaces around their names.

    A column that has the name of a mapped field but is not its column is dropped.
    """
    named = {str(name).strip(): value for name, value in obj.items()}
    if len(named) != len(obj):
        raise ValueError(f"{where}: two columns have the same name up to surrounding spaces; remove one of them.")
    for field, column in columns.items():
        if field in _REQUIRED and column not in named:
            raise ValueError(
                f"{where}: there is no column {column!r} (columns {field}={column}); it has {', '.join(named)}. If only "
                f"another file has such columns, write them behind its name: FILE:{field}={column}."
            )
    rest = {name: value for name, value in named.items() if name not in columns and name not in columns.values()}
    return rest | {field: named.get(column) for field, column in columns.items()}


def native_columns(obj: Mapping[str, Any], *, where: str) -> Mapping[str, Any]:
    """Translate a record of another tool; other records, and columns with other meanings, are returned unchanged."""
    columns = {name: _parsed_turns(value, where, name) if name in _OF_TURNS else value for name, value in obj.items()}
    if columns.get("chosen") is not None and columns.get("completion") is None:
        columns["completion"] = columns.pop("chosen")
        columns.pop("rejected", None)
        if columns.get("prompt") is None and _are_turns(columns["completion"]):
            columns["messages"] = columns.pop("completion")
    if _are_turns(columns.get("prompt")) or _are_turns(columns.get("completion")):
        asked = [_with_role(turn) for turn in _turns(columns.pop("prompt", None), "user")]
        answered = [_with_role(turn) for turn in _turns(columns.pop("completion", None), "assistant")]
        if _said(answered[: len(asked)]) == _said(asked):
            asked = []  # the whole conversation begins with it
        columns["messages"] = [*asked, *answered]
    if _are_turns(columns.get("conversations")):
        columns["messages"] = columns.pop("conversations")
    alpaca = all(columns.get(name) is not None for name in ("instruction", "output"))
    if alpaca and columns.get("question") is None and columns.get("answer") is None:
        asked_for = (columns.pop("instruction"), columns.pop("input", None))
        columns.pop("text", None)  # all of it in one text
        texts = [text for text in asked_for if isinstance(text, str) and text]
        columns["question"] = "\n\n".join(texts) or asked_for[0]
        columns["answer"] = columns.pop("output")
        if columns.get("system"):
            columns["messages"] = [
                *_turns(columns.pop("question"), "user"),
                *_turns(columns.pop("answer"), "assistant"),
            ]
    if _are_turns(columns.get("messages")):
        columns["messages"] = [_with_role(turn) for turn in columns["messages"]]
        system, first = columns.get("system"), columns["messages"][0]
        if isinstance(system, str) and system and first.get("role") != "system":
            columns["messages"] = [*_turns(columns.pop("system"), "system"), *columns["messages"]]
        columns["messages"] = [_as_text(turn, where) for turn in columns["messages"]]
    return columns


def _are_turns(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and isinstance(value[0], Mapping)


def _parsed_turns(value: Any, where: str, column: str) -> Any:
    """Parse turns that are written as JSON, as in a CSV cell; other values are returned unchanged."""
    if not isinstance(value, str) or not _TURNS.match(value):
        return value
    try:
        return parse_json(value, what="as JSON")
    except ValueError as error:
        raise ValueError(f"{where}, column {column!r}: turns must be written {error} Save the rows as JSONL.") from None


def _said(turns: Sequence[Any]) -> list[Any]:
    """Return the turns without further keys, to compare them; what is no turn is returned as it is."""
    return [(turn.get("role"), turn.get("content")) if isinstance(turn, Mapping) else turn for turn in turns]


def _turns(value: Any, role: str) -> Sequence[Any]:
    """Return a list of turns as it is, and a text as the only turn of a role."""
    if isinstance(value, list | tuple):
        return value
    return [{"role": role, "content": value}]


def _with_role(turn: Any) -> Any:
    """Return a turn of another tool with `role` and `content`, and with our name of its role."""
    if not isinstance(turn, Mapping):
        return turn
    if "from" in turn and "role" not in turn:
        turn = {"role": turn["from"], "content": turn.get("value")}
    role = turn.get("role")
    if not isinstance(role, str):
        return turn
    return {**turn, "role": _SPEAKERS.get(role.lower(), role)}


def _as_text(turn: Any, where: str) -> Any:
    if not isinstance(turn, Mapping) or not isinstance(turn.get("content"), list | tuple):
        return turn
    parts = [part if isinstance(part, Mapping) else {"text": part} for part in turn["content"]]
    others = [part["type"] for part in parts if part.get("type") not in _TEXT_PARTS]
    if others:
        raise ValueError(
            f"{where}, column 'messages': a part of type {others[0]!r} is not text; only text can be unlearned."
        )
    if not all(isinstance(part.get("text"), str | None) for part in parts):
        raise ValueError(f"{where}, column 'messages': a part of the content is not text; write it in quotes.")
    return {**turn, "content": "".join(str(part["text"]) for part in parts if part.get("text") is not None)}
