"""Rows of a Hub data set, through the optional package `datasets`, each with its place for error messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atwu._extras import require
from atwu.data.readers import Record


def hub_records(repository: str, config: str | None, split: str | None, *, without: str) -> Iterator[Record]:
    """Records of one split.

    Args:
        repository: data set as `org/name`.
        config: its configuration; None for the default.
        split: the split; None when there is only one.
        without: what to know when `datasets` is missing; starts the error.

    Raises:
        ImportError: `datasets` is not installed.
        ValueError: several splits and none chosen.
    """
    try:
        datasets = require("datasets", extra="hub")
    except ImportError as error:
        raise ImportError(f"{without}; {error}") from error
    name = ":".join(part for part in (repository, config, split) if part)
    table: Any = datasets.load_dataset(repository, config, split=split)
    if split is None:
        splits = list(table)
        if len(splits) != 1:
            raise ValueError(
                f"{name!r} has the splits {', '.join(splits)}; name one, as in {repository}:{config or 'default'}:"
                f"{splits[0] if splits else 'train'}."
            )
        table = table[splits[0]]
    return ((f"{name}, row {number}", obj) for number, obj in enumerate(table, start=1))
