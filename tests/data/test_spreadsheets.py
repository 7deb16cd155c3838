"""Tables as spreadsheets save them are read, or refused by what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from atwu.benchmarks.sources import load_rows
from atwu.data.records import file_records
from atwu.data.row_parsing import parse_row
from atwu.data.schema import Example

ROW = Example.from_qa("Wo wohnt Jörg Venn?", "In Kelbury; am Hafen.")
TABLE = 'question,answer\r\nWo wohnt Jörg Venn?,"In Kelbury; am Hafen."\r\n'


@pytest.mark.parametrize(
    "content",
    [
        TABLE.encode("utf-8-sig"),
        TABLE.replace(",", "\t").encode("utf-16"),
        b"\xfe\xff" + TABLE.replace(",", "\t").encode("utf-16-be"),
        ("sep=;\r\n" + TABLE.replace(",", ";")).encode(),
        ('"sep=,"\r\n' + TABLE).encode(),
        (TABLE + ",\r\n , \r\n\r\n").encode(),
    ],
    ids=["mark", "unicode text", "big-endian", "separator line", "quoted separator line", "rows without content"],
)
def test_a_table_of_a_spreadsheet_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    assert [parse_row(columns, where=where) for where, columns in file_records(path)] == [ROW]


def test_columns_without_a_name_are_ignored_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(",question,answer,,\n1,Who?,Orla Venn.,,\n")
    loaded = load_rows(path)
    assert list(loaded.rows) == [Example.from_qa("Who?", "Orla Venn.")]
    assert loaded.warnings == ("ignored columns: column 1, column 4, column 5",)


def test_a_line_of_an_error_counts_the_separator_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sep=;\nquestion;answer\nWho?;Orla Venn.\nWhere?;Kelbury;3\n")
    with pytest.raises(ValueError, match=r"row 2 \(ends on line 4\): 3 fields"):
        list(file_records(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", b"Who?,Orla Venn.\n", r"names the columns \(Who\?, Orla Venn\.\), and nothing follows"),
        ("rows.csv", b"question,answer\n,\n", "rows.csv has no rows"),
        ("rows.xlsx", b"PK\x03\x04", r"'\.xlsx' is not supported.*saved as CSV"),
        (
            "rows.tsv",
            "question\tanswer\nWo?\tKöln\n".encode("cp1252"),
            "line 2: not valid UTF-8 .*save the file as UTF-8",
        ),
        ("rows.txt", "question\tanswer\nWho?\tOrla Venn.\n".encode("utf-16"), r"is a table.*suffix \.tsv"),
        ("rows.csv", b"\xff\xfea", "not valid UTF-16"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        load_rows(path)
    assert "\n" not in str(error.value)


def test_an_address_is_refused_before_a_file_of_its_name_is_looked_for() -> None:
    with pytest.raises(ValueError, match="is an address; download the file"):
        load_rows("https://example.org/rows.jsonl")
