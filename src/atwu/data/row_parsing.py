"""Check a raw record (a mapping of columns) and convert it to an `Example`; write rows back to a file.

Layouts: question/answer, prompt/completion, messages, text, and those of `atwu.data.row_columns`. All rows from files, Hub
datasets and Python callers pass through `parse_row`, so other modules get valid rows only. Every error message starts with
`where`, the location of the record.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from atwu._file_reading import parse_json
from atwu._files import write_parts
from atwu.data.labelled_words import target_word_spans
from atwu.data.row_columns import ASKED_COLUMNS, COLUMN_LAYOUTS, ROW_FIELDS, native_columns
from atwu.data.schema import Example, Message, Span, checked_span

_LATER_FIELDS = ("aliases", "asked_span", "alternatives", "chance_run")
"""Fields that the first recorded fingerprints did not know: rows without them keep theirs."""
ROLES = ("system", "user", "assistant")
_INVISIBLE = re.compile(r"[\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]+")
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
_JSON_LIST = re.compile(r'\s*\[\s*("|\]\s*$)')
"""Start of a JSON list of strings in a cell."""
_REQUIRED_FIELDS = ("messages", "answer", "forget_spans")
_OPTIONAL_FIELDS = tuple(field.name for field in fields(Example) if field.name not in _REQUIRED_FIELDS)
"""Fields of a row that are columns of the same name, left out when empty; empty labels say that there are none."""
_LAYOUT_TEXT = "question + answer, prompt + completion, messages, or text"


def parse_row(obj: Mapping[str, Any], *, where: str, counts: Counter[str] | None = None) -> Example:
    """Check one record and build its `Example`.

    A column that is absent, null, or (for optional columns) an empty string is a missing value. Lists may be JSON strings, as
    in a CSV cell.

    Args:
        counts: receives the number of corrections in `target_words`; see `target_word_spans`.
    """
    if not isinstance(obj, Mapping):
        raise ValueError(f"{where}: expected an object with columns ({_LAYOUT_TEXT}), got {_kind(obj)}.")
    obj = native_columns(obj, where=where)
    layout = _layout(obj, where)
    # A cell of a CSV file cannot be null, so an empty text is none.
    optional = {name: obj[name] for name in ROW_FIELDS if obj.get(name) not in (None, "")}
    if layout == ("messages",):
        messages, answer = _parse_messages(obj["messages"], where)
    elif layout == ("text",):
        messages, answer = (), _string(obj["text"], where, "text")
    else:
        question = _string(obj[layout[0]], where, layout[0])
        messages, answer = (Message("user", question),), _string(obj[layout[1]], where, layout[1])
    return Example(
        messages=messages,
        answer=answer,
        forget_spans=_parse_labels(optional, answer, where, counts),
        paraphrases=(
            *_strings(optional, "paraphrases", where),
            *_strings(optional, "paraphrased_question", where, single=True),
        ),
        wrong_answers=(
            *_strings(optional, "wrong_answers", where),
            *_strings(optional, "perturbed_answer", where, single=True),
        ),
        aliases=_strings(optional, "aliases", where, single=True),
        asked_span=_parse_asked_span(optional, answer, where),
        alternatives=_strings(optional, "alternatives", where),
        chance_run=_parse_chance_run(optional, where, text=not messages),
        **{
            name: _string(optional[name], where, name)
            for name in ("alternate", "paraphrased_answer", "subject")
            if name in optional
        },
    )


def ignored_columns(obj: Mapping[str, Any]) -> set[str]:
    """Return the columns that `parse_row` ignores; keys inside a message are named `messages.KEY`.

    What `atwu ask` measured is not among them: it is meant for the reader of the file.
    """
    native = native_columns(obj, where="")
    ignored = {str(name) for name in native if name not in ROW_FIELDS}
    ignored |= {"rejected"} & obj.keys()
    if "askings" in native or "recited_share" in native:
        ignored -= ASKED_COLUMNS
    turns = native.get("messages")
    if isinstance(turns, list):
        keys = {key for turn in turns if isinstance(turn, Mapping) for key, value in turn.items() if value is not None}
        ignored |= {f"messages.{key}" for key in keys - {"role", "content"}}
    return ignored


def fingerprint(rows: Iterable[Example]) -> str:
    """Compute the SHA-256 (hex) of the canonical JSON of the rows, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        plain = {field.name: getattr(row, field.name) for field in fields(row)}  # five times as fast as `asdict`
        for name in _LATER_FIELDS:
            if not plain[name]:
                del plain[name]
        plain["messages"] = [{"role": message.role, "content": message.content} for message in row.messages]
        line = json.dumps(plain, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        digest.update(line.encode("ascii") + b"\n")
    return digest.hexdigest()


def row_record(row: Example) -> dict[str, Any]:
    """Convert a row to columns, without empty optional columns."""
    if not row.messages:
        record: dict[str, Any] = {"text": row.answer}
    elif [message.role for message in row.messages] == ["user"]:
        record = {"question": row.question, "answer": row.answer}
    else:
        turns = [*(asdict(message) for message in row.messages), {"role": "assistant", "content": row.answer}]
        record = {"messages": turns}
    if row.forget_spans is not None:
        record["forget_spans"] = row.forget_spans
    for name in _OPTIONAL_FIELDS:
        value = getattr(row, name)
        if value:
            record[name] = value
    return record


def write_rows(path: str | Path, rows: Iterable[Example]) -> None:
    """Write rows as JSONL that reads back as equal rows; the file is replaced atomically."""
    write_parts(path, (json.dumps(row_record(row), ensure_ascii=False) + "\n" for row in rows))


def _layout(obj: Mapping[str, Any], where: str) -> tuple[str, ...]:
    present = [name for layout in COLUMN_LAYOUTS for name in layout if obj.get(name) is not None]
    used = [layout for layout in COLUMN_LAYOUTS if any(name in present for name in layout)]
    if not used:
        columns = ", ".join(repr(str(name)[:40])[1:-1] for name in [*obj][:12]) or "none"
        named = [f"{name}={column}" for name in ROW_FIELDS for column in obj if str(column).lower() == name]
        mapping = ",".join(named) or "question=COLUMN,answer=COLUMN"
        raise ValueError(
            f"{where}: no usable columns (found: {columns}); a row has {_LAYOUT_TEXT}. Columns with other names "
            f"stand behind the file: FILE:{mapping}."
        )
    if len(used) > 1:
        raise ValueError(
            f"{where}: columns {', '.join(present)} belong to different layouts; use one of {_LAYOUT_TEXT}."
        )
    for name in used[0]:
        if name not in present:
            hint = ""
            if name not in obj:
                hint = f" If it has another name: FILE:{name}=COLUMN."
            raise ValueError(
                f"{where}, column {name!r}: missing or empty; {' and '.join(used[0])} are both required.{hint}"
            )
    return used[0]


def _parse_messages(value: Any, where: str) -> tuple[tuple[Message, ...], str]:
    turns = _json_list(value, where, "messages", "a list of {role, content} objects")
    messages: list[Message] = []
    for number, turn in enumerate(turns):
        column = f"messages[{number}]"
        if not isinstance(turn, Mapping) or turn.get("role") is None or turn.get("content") is None:
            raise ValueError(f"{where}, column {column!r}: expected an object with role and content, got {turn!r:.80}.")
        if turn["role"] not in ROLES:
            raise ValueError(f"{where}, column {column!r}: role {turn['role']!r} is not one of {', '.join(ROLES)}.")
        messages.append(Message(turn["role"], _string(turn["content"], where, f"{column}.content")))
    roles = [message.role for message in messages]
    turn_roles = roles
    if roles[:1] == ["system"]:
        turn_roles = roles[1:]
    if not turn_roles or turn_roles != ["user", "assistant"] * (len(turn_roles) // 2):
        raise ValueError(
            f"{where}, column 'messages': roles must be an optional system turn first, then user and assistant in turn, ending "
            f"with the assistant turn that is the answer; got roles {', '.join(roles) or 'none'}."
        )
    return tuple(messages[:-1]), messages[-1].content


def _parse_labels(
    optional: Mapping[str, Any], answer: str, where: str, counts: Counter[str] | None
) -> tuple[Span, ...] | None:
    if "target_words" in optional and "forget_spans" in optional:
        raise ValueError(f"{where}: columns forget_spans and target_words both label the answer; use only one of them.")
    if "target_words" in optional:
        items = _json_list(optional["target_words"], where, "target_words", "a list of {word, start, end} objects")
        return target_word_spans(items, answer, where=where, counts=counts)
    if "forget_spans" not in optional:
        return None
    expected = "a list of [start, end] character positions of the answer"
    spans: list[Span] = []
    for item in _json_list(optional["forget_spans"], where, "forget_spans", expected):
        span = checked_span(item, answer, where=f"{where}, column 'forget_spans'")
        if spans and span[0] < spans[-1][1]:
            raise ValueError(
                f"{where}, column 'forget_spans': span {list(span)} overlaps or precedes {list(spans[-1])}; sort the spans "
                "and merge those that overlap."
            )
        spans.append(span)
    return tuple(spans)


def _parse_asked_span(optional: Mapping[str, Any], answer: str, where: str) -> Span | None:
    if "asked_span" not in optional:
        return None
    expected = "two character positions of the answer, [start, end]"
    pair = _json_list(optional["asked_span"], where, "asked_span", expected)
    return checked_span(pair, answer, where=f"{where}, column 'asked_span'")


def _parse_chance_run(optional: Mapping[str, Any], where: str, *, text: bool) -> int | None:
    if "chance_run" not in optional:
        return None
    value = optional["chance_run"]
    if not text:
        raise ValueError(f"{where}, column 'chance_run': only a text has a wording to recite; leave it out.")
    if isinstance(value, str) and value.strip().isdecimal():  # a CSV cell
        value = int(value)
    if type(value) is not int or value < 1:
        raise ValueError(f"{where}, column 'chance_run': expected a number of words of at least 1, got {value!r:.80}.")
    return value


def _strings(optional: Mapping[str, Any], column: str, where: str, *, single: bool = False) -> tuple[str, ...]:
    """Parse a list of texts; `single` allows a bare text in place of a list of one."""
    if column not in optional:
        return ()
    value = optional[column]
    if single and isinstance(value, str) and not _JSON_LIST.match(value):
        value = [value]
    items = _json_list(value, where, column, "a list of strings")
    return tuple(_string(item, where, f"{column}[{number}]") for number, item in enumerate(items))


def is_text(value: str) -> bool:
    """Return whether a row may contain the value: it has visible characters and no control characters."""
    return bool(_INVISIBLE.sub("", value)) and not _NO_TEXT.search(value)


def _string(value: Any, where: str, column: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}, column {column!r}: expected text, got {_kind(value)}: {value!r:.80}.")
    if not _INVISIBLE.sub("", value):
        raise ValueError(f"{where}, column {column!r}: is empty; add text or remove the row.")
    match = _NO_TEXT.search(value)
    if match is not None:
        # Half of a surrogate pair cannot be written as UTF-8, so the row could not be saved.
        what = "an unpaired surrogate"
        if match[0] < "\ud800":
            what = f"the control character U+{ord(match[0]):04X}"
        raise ValueError(f"{where}, column {column!r}: contains {what}, which is not allowed in text; remove it.")
    return value


def _json_list(value: Any, where: str, column: str, expected: str) -> list[Any]:
    if isinstance(value, str):
        try:
            value = parse_json(value, what="as JSON")
        except ValueError as error:
            raise ValueError(f"{where}, column {column!r}: expected {expected} {error}") from None
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where}, column {column!r}: expected {expected}, got {_kind(value)}: {value!r:.80}.")
    return list(value)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true/false", type(None): "null"}
    if type(value) not in names and isinstance(value, int | float):
        return "a number"
    return names.get(type(value), type(value).__name__)
