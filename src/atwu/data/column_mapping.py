"""Column mappings: which column of a file is which field of a row, such as `question=prompt,answer=completion`.

A mapping is written behind the name of its source (`faq.csv:question=prompt`), so records and commands that repeat a
run read the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from atwu._names import did_you_mean
from atwu.data.row_parsing import COLUMN_LAYOUTS, ROW_FIELDS

_MAPPED = re.compile(r"(.+?):(\w+\s*=.*)", re.DOTALL)
_REQUIRED = frozenset(name for layout in COLUMN_LAYOUTS for name in layout)


def parse_columns(text: str) -> dict[str, str]:
    """Parse a mapping, field -> column of the file.

    Raises:
        ValueError: it is not a list of FIELD=COLUMN, or names an unknown field.
    """
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
    found = _MAPPED.fullmatch(source)
    return (source, {}) if found is None else (found[1], parse_columns(found[2]))


def mapped_record(obj: Mapping[str, Any], columns: Mapping[str, str], *, where: str) -> Mapping[str, Any]:
    """Return a record with its columns renamed to fields, without spaces around their names.

    A column that has the name of a mapped field but is not its column is dropped.

    Raises:
        ValueError: the column of a prompt or an answer is not in the record, or two names differ only in spaces.
    """
    named = {str(name).strip(): value for name, value in obj.items()}
    if len(named) != len(obj):
        raise ValueError(f"{where}: two columns have the same name up to surrounding spaces; remove one of them.")
    for field, column in columns.items():
        if field in _REQUIRED and column not in named:
            raise ValueError(
                f"{where}: there is no column {column!r} (columns {field}={column}); it has {', '.join(named)}."
            )
    rest = {name: value for name, value in named.items() if name not in columns and name not in columns.values()}
    return rest | {field: named.get(column) for field, column in columns.items()}
