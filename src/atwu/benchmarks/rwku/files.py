"""The files of RWKU (Jin et al. 2024) as records, from a folder or from the Hub, with their rows counted.

The folder is the one in the environment variable ATWU_DATA, or its sub-folder `rwku`; without the variable the Hub data
set is read (extra `hub`). A file whose number of rows is not the published one is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from atwu.benchmarks.rwku.subjects import normal_name
from atwu.data.records import Record, hub_records, read_jsonl

ProbeKind = Literal["fb", "qa", "aa", "neighbour_fb", "neighbour_qa"]

FILES: Mapping[ProbeKind, str] = MappingProxyType(
    {
        "fb": "forget_level1.jsonl",
        "qa": "forget_level2.jsonl",
        "aa": "forget_level3.jsonl",
        "neighbour_fb": "neighbor_level1.jsonl",
        "neighbour_qa": "neighbor_level2.jsonl",
    }
)

HUB_NAME = "jinzhuoran/RWKU"
TARGETS = "forget_target.jsonl"
PASSAGES = "train_original_passage.jsonl"

COUNTS: Mapping[str, int] = {
    TARGETS: 200,
    FILES["fb"]: 3268,
    FILES["qa"]: 2879,
    FILES["aa"]: 6984,
    FILES["neighbour_fb"]: 5846,
    FILES["neighbour_qa"]: 5533,
    PASSAGES: 12798,
}
"""Rows of the whole files. The number of passages is not published: it is that of the per-target folders, and not
demanded of the Hub."""


def read_table(file: str) -> tuple[Record, ...]:
    """All records of one file, counted.

    Args:
        file: a key of `COUNTS`; from the Hub, the configuration of the same name is read.

    Raises:
        FileNotFoundError: ATWU_DATA is set and does not hold the file.
        ValueError: the number of rows is not the published one.
        ImportError: the Hub is to be read and the extra is not installed.
    """
    folder = data_folder()
    if folder is None:
        without = f"ATWU_DATA is not set, so RWKU is taken from the Hub ({HUB_NAME})"
        records = tuple(hub_records(HUB_NAME, file.removesuffix(".jsonl"), None, without=without))
    else:
        records = tuple(read_jsonl(folder / file))
    if len(records) != COUNTS[file] and _is_counted(file):
        place = f"{HUB_NAME} on the Hub" if folder is None else str(folder)
        raise ValueError(
            f"{file} of {place}: found {len(records)} rows, expected {COUNTS[file]}; the whole file is needed, "
            "unchanged, also when few subjects are read from it."
        )
    return records


def counted(file: str) -> str:
    """What `read_table` verified about a file, as a sentence."""
    return f"{file}: {COUNTS[file]} rows, as expected" if _is_counted(file) else f"{file}: rows not counted"


def data_folder() -> Path | None:
    """Where the files are; None stands for the Hub.

    Raises:
        FileNotFoundError: ATWU_DATA is set and does not hold all the files.
    """
    given = os.environ.get("ATWU_DATA")
    if not given:
        return None
    folders = [Path(given).expanduser() / "rwku", Path(given).expanduser()]
    missing = {folder: [file for file in COUNTS if not (folder / file).is_file()] for folder in folders}
    for folder in folders:
        if not missing[folder]:
            return folder
    best = min(folders, key=lambda folder: len(missing[folder]))
    raise FileNotFoundError(
        f"ATWU_DATA is {given}, and {best} has no {', '.join(missing[best])}; put RWKU's files there, or unset "
        f"ATWU_DATA to read {HUB_NAME} from the Hub."
    )


def read_targets() -> tuple[str, ...]:
    """Names of all subjects in published order."""
    return tuple(normal_name(text_columns(record, ["target"])["target"]) for record in read_table(TARGETS))


def text_columns(record: Record, needed: list[str]) -> dict[str, str]:
    """Columns that must hold text."""
    where, columns = record
    wrong = [name for name in needed if not isinstance(columns.get(name), str)]
    if wrong:
        raise ValueError(f"{where}: expected text in {', '.join(wrong)}; the columns are {', '.join(columns)}.")
    return {name: columns[name] for name in needed}


def _is_counted(file: str) -> bool:
    return file != PASSAGES or data_folder() is not None
