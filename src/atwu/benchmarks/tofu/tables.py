"""The tables of TOFU (Maini et al. 2024): where they lie, and whether they are what was published.

From the folder in the environment variable ATWU_DATA (its sub-folder `tofu`, or the folder itself), one JSONL file per
table, or from the Hub when ATWU_DATA is not set. Rows, columns and the number of wrong answers are counted when a table
is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from atwu.data.records import Record, hub_records, read_jsonl

HUB = "locuslab/TOFU"
DATA_VARIABLE = "ATWU_DATA"
LABELS_SUFFIX = "_with_common_words_gpt"
"""Ending of the tables with word labels (Zhou et al. 2025), which are not part of TOFU itself."""

_PAIR = ("question", "answer")
_PERTURBED = (*_PAIR, "paraphrased_question", "paraphrased_answer", "perturbed_answer")
_OPTIONS = tuple(f"option{number}" for number in range(1, 5))


@dataclass(frozen=True, slots=True)
class Published:
    """What a table holds as published."""

    rows: int
    columns: tuple[str, ...] = _PAIR
    wrong_answers: int | None = None
    """Entries of every `perturbed_answer`."""
    on_hub: bool = True


def _published() -> dict[str, Published]:
    tables = {"full": Published(4000)}
    for percent, rows in ((1, 40), (5, 200), (10, 400)):
        tables[f"forget{percent:02}"] = tables[f"holdout{percent:02}"] = Published(rows)
        tables[f"forget{percent:02}_perturbed"] = Published(rows, _PERTURBED, wrong_answers=5)
        tables[f"forget{percent:02}{LABELS_SUFFIX}"] = Published(rows, (*_PAIR, "target_words"), on_hub=False)
        tables[f"retain{100 - percent}"] = Published(4000 - rows)
    tables["retain_perturbed"] = Published(400, _PERTURBED, wrong_answers=5)
    for name, rows in (("real_authors", 100), ("world_facts", 117)):
        tables[name] = Published(rows, (*_PAIR, *_OPTIONS))
        tables[f"{name}_perturbed"] = Published(rows, (*_PAIR, "perturbed_answer"), wrong_answers=3)
    return tables


PUBLISHED: Mapping[str, Published] = MappingProxyType(_published())
"""Name of a table -> what it holds as published."""


class TofuTables:
    """One copy of TOFU; every table is read and counted once."""

    def __init__(self, folder: Path | None = None, *, published: Mapping[str, Published] | None = None) -> None:
        """Bind a copy.

        Args:
            folder: where the JSONL files are; None for the Hub.
            published: what the tables must hold; `PUBLISHED` by default.
        """
        self.folder = folder
        self.published = PUBLISHED if published is None else published
        self._read: dict[str, tuple[Record, ...]] = {}

    def has(self, name: str) -> bool:
        """Whether the copy has a table."""
        return self.published[name].on_hub if self.folder is None else self._path(self.folder, name).is_file()

    def place(self, name: str) -> str:
        """The table's file, or its name on the Hub."""
        return f"{HUB}:{name}:train" if self.folder is None else str(self._path(self.folder, name))

    def table(self, name: str) -> tuple[Record, ...]:
        """The records of a table.

        Raises:
            FileNotFoundError: the folder lacks it.
            ValueError: rows, columns or wrong answers are not those published.
            ImportError: the Hub is asked and `datasets` is not installed.
        """
        if name not in self._read:
            records = self._records(name)
            check_published(records, self.published[name], place=self.place(name))
            self._read[name] = records
        return self._read[name]

    def ignored(self) -> tuple[str, ...]:
        """Columns of the tables read so far that TOFU does not have, one sentence per table."""
        known = {column for published in self.published.values() for column in published.columns}
        ignored = {
            name: sorted({str(column) for _, columns in records for column in columns} - known)
            for name, records in self._read.items()
        }
        return tuple(f"{name}: ignored columns: {', '.join(found)}" for name, found in ignored.items() if found)

    def _records(self, name: str) -> tuple[Record, ...]:
        if self.folder is None:
            without = f"{DATA_VARIABLE} is not set, so TOFU is taken from the Hub ({HUB})"
            return tuple(hub_records(HUB, name, "train", without=without))
        path = self._path(self.folder, name)
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist; put the {self.published[name].rows} rows of {name} there, or unset "
                f"{DATA_VARIABLE} to take TOFU from the Hub ({HUB})."
            )
        return tuple(read_jsonl(path))

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        return folder / f"{name}.jsonl"


def open_tables() -> TofuTables:
    """The copy that ATWU_DATA points to, or the Hub's when it is not set.

    Raises:
        FileNotFoundError: the folder does not hold TOFU.
    """
    given = os.environ.get(DATA_VARIABLE)
    if not given:
        return TofuTables()
    root = Path(given).expanduser()
    for folder in (root / "tofu", root):
        if any((folder / f"{name}.jsonl").is_file() for name in PUBLISHED):
            return TofuTables(folder)
    raise FileNotFoundError(
        f"{DATA_VARIABLE} is {given}, and neither {root / 'tofu'} nor {root} has a file of TOFU, such as "
        f"forget10.jsonl; put the files there, or unset {DATA_VARIABLE} to take TOFU from the Hub ({HUB})."
    )


def check_published(records: tuple[Record, ...], expected: Published, *, place: str) -> None:
    """Compare a table with what was published.

    Raises:
        ValueError: what differs first, with the place, what was found and what was expected.
    """
    advice = f"get the file again from {HUB}" if expected.on_hub else "get the file of the same split again"
    if len(records) != expected.rows:
        raise ValueError(f"{place}: found {len(records)} rows, expected {expected.rows}; {advice}.")
    for where, columns in records:
        missing = [name for name in expected.columns if columns.get(name) is None]
        if missing:
            raise ValueError(
                f"{where}: found the columns {', '.join(columns)}, expected {', '.join(expected.columns)} (nothing in "
                f"{', '.join(missing)}); {advice}."
            )
        wrong = columns.get("perturbed_answer")
        if expected.wrong_answers is not None and not _is_list(wrong, expected.wrong_answers):
            found = f"{len(wrong)} entries" if isinstance(wrong, list) else repr(wrong)[:60]
            raise ValueError(
                f"{where}, column 'perturbed_answer': found {found}, expected a list of {expected.wrong_answers}; "
                f"{advice}."
            )


def check_equal(found: Record, expected: Record) -> None:
    """Check that two records are about the same question and answer.

    Raises:
        ValueError: they differ; both places and texts are named.
    """
    for column in _PAIR:
        ours, theirs = found[1][column], expected[1][column]
        if ours != theirs:
            raise ValueError(
                f"{found[0]}, column {column!r}: found {ours!r:.80}, expected {theirs!r:.80} as in {expected[0]}; "
                f"take both from one copy of TOFU ({HUB})."
            )


def pair_of(record: Record) -> tuple[str, str]:
    """Question and answer of a record."""
    return record[1]["question"], record[1]["answer"]


def options_of(record: Record) -> list[Any]:
    """The four choices of a record of `real_authors` or `world_facts`."""
    return [record[1][name] for name in _OPTIONS]


def _is_list(value: Any, length: int) -> bool:
    return isinstance(value, list) and len(value) == length
