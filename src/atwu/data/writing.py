"""Rows to JSONL that `load_rows` reads back as equal rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from atwu.data.schema import Example


def row_record(row: Example) -> dict[str, Any]:
    """One row as columns; optional columns only where they hold something."""
    if not row.messages:
        record: dict[str, Any] = {"text": row.answer}
    elif [message.role for message in row.messages] == ["user"]:
        record = {"question": row.question, "answer": row.answer}
    else:
        turns = [*(asdict(message) for message in row.messages), {"role": "assistant", "content": row.answer}]
        record = {"messages": turns}
    rest = {
        "forget_spans": None if row.forget_spans is None else [list(span) for span in row.forget_spans],
        "paraphrases": list(row.paraphrases) or None,
        "wrong_answers": list(row.wrong_answers) or None,
        "alternate": row.alternate,
        "paraphrased_answer": row.paraphrased_answer,
        "subject": row.subject,
    }
    return record | {name: value for name, value in rest.items() if value is not None}


def write_rows(path: str | Path, rows: Iterable[Example]) -> None:
    """Write rows in one step: a reader sees the old file or the whole new one."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    lines = (json.dumps(row_record(row), ensure_ascii=False) + "\n" for row in rows)
    temporary.write_text("".join(lines), encoding="utf-8")
    os.replace(temporary, path)
