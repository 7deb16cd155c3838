"""Damaged row files: read as if whole, or rejected in one line that names the file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from atwu.benchmarks.sources import load_rows
from atwu.cli.app import EXPECTED, in_a_line

ROWS: list[dict[str, Any]] = [
    {"question": "Where was Orla Venn born?", "answer": "In Kelbury, 1961."},
    {"question": "Who is Tavi Brook?", "answer": "A “clerk” of Öst."},
    {"question": "What is it?", "answer": "Two words."},
]
JSONL = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
JSON = json.dumps(ROWS, ensure_ascii=False).encode()
CSV = b"question,answer\n" + b"".join(f'"{row["question"]}","{row["answer"]}"\n'.encode() for row in ROWS)


def table(*columns: tuple[str, list[Any]]) -> bytes:
    out = io.BytesIO()
    parquet.write_table(arrow.table([each for _, each in columns], names=[name for name, _ in columns]), out)
    return out.getvalue()


def column(name: str) -> list[Any]:
    return [row[name] for row in ROWS]


PARQUET = table(("question", column("question")), ("answer", column("answer")))


def lines(**changes: Any) -> bytes:
    """The rows as JSONL with changes to the first."""
    return b"\n".join(json.dumps(row).encode() for row in ({**ROWS[0], **changes}, *ROWS[1:]))


WHOLE = {"jsonl": JSONL, "json": JSON, "csv": CSV, "parquet": PARQUET}
ANY: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "cut before its end": lambda content: content[:-4],
    "zeroed": lambda content: bytes(len(content)),
    "a page": lambda content: b"<!DOCTYPE html><html><body>404: not found</body></html>",
    "a pointer": lambda content: b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 999\n",
}
TEXT: dict[str, Callable[[bytes], bytes]] = {
    "with a byte-order mark": lambda content: b"\xef\xbb\xbf" + content,
    "with CRLF": lambda content: content.replace(b"\n", b"\r\n"),
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "Latin-1": lambda content: content.decode().replace("“", '"').replace("”", '"').encode("latin-1"),
    "NUL inside": lambda content: content.replace(b"Orla", b"Or\0la"),
    "cut in a character": lambda content: content[: content.index("Ö".encode()) + 1],
    "white space": lambda content: b" \n\t\n",
}
OWN: dict[str, bytes] = {
    "jsonl: two objects in a line": JSONL.replace(b"\n", b"", 1),
    "jsonl: one list": JSON,
    "jsonl: blank lines": JSONL.replace(b"\n", b"\n\n"),
    "jsonl: a number in a line": JSONL + b"3\n",
    "jsonl: single quotes": JSONL.replace(b'"', b"'"),
    "jsonl: invisible answer": lines(answer="\u200b \ufeff"),
    "jsonl: messages nested": b'{"messages": [[{"role": "user", "content": "Hello?"}]]}\n',
    "json: rows below a key": json.dumps({"data": ROWS}).encode(),
    "json: columns of lists": json.dumps({"question": column("question"), "answer": column("answer")}).encode(),
    "json: two lists": JSON + JSON,
    "json: lines": JSONL,
    "csv: without header": CSV.partition(b"\n")[2],
    "csv: a field too many": CSV.replace(b'"In Kelbury, 1961."', b"In Kelbury, 1961."),
    "csv: a field too few": CSV.replace(b'"Who is Tavi Brook?",', b""),
    "csv: quote left open": CSV.replace(b'1961."', b"1961."),
    "csv: tabs": CSV.replace(b"question,answer", b"question\tanswer").replace(b'","', b'"\t"'),
    "csv: spaces in the header": CSV.replace(b"question,answer", b" question , answer "),
    "parquet: other columns": table(("ask", column("question")), ("reply", column("answer"))),
    "parquet: null": table(("question", column("question")), ("answer", [None, *column("answer")[1:]])),
    "parquet: numbers": table(("question", column("question")), ("answer", [1, 2, 3])),
    "parquet: NaN": table(("question", column("question")), ("answer", [float("nan")] * 3)),
    "parquet: column twice": table(
        ("question", column("question")), ("answer", column("answer")), ("answer", column("question"))
    ),
}
FILES = {
    **{f"{kind}: {how}": change(WHOLE[kind]) for kind in WHOLE for how, change in ANY.items()},
    **{f"{kind}: {how}": change(WHOLE[kind]) for kind in ("jsonl", "csv") for how, change in TEXT.items()},
    **OWN,
}


def read(path: Path) -> list[tuple[str, str]]:
    return [(row.question, row.answer) for row in load_rows(path).rows]


@pytest.mark.parametrize("name", FILES)
def test_damaged_row_files_are_rejected_by_name_or_read_as_if_whole(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{name.partition(':')[0]}"
    path.write_bytes(FILES[name])
    try:
        found = read(path)
    except EXPECTED as error:
        line = in_a_line(error)
        assert str(path) in line
        assert len(line) < 600
    else:
        assert found == [(row["question"], row["answer"]) for row in ROWS]
