"""KnowUnDo (Tian et al. 2024): what has to be unlearned, and what lies close to it and has to stay.

Each domain has an unlearning and a retention set with training and validation rows. The original model is fine-tuned on
all four (`full.json` of the authors is their union); a method sees the training rows, and the validation rows measure it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from atwu.benchmarks.base import Benchmark, LoadedRows, first_rows, name_parts, rows_to_measure
from atwu.benchmarks.dataset_files import DataSet, PublishedFile, Tables, open_tables
from atwu.data.records import Record
from atwu.data.row_parsing import parse_row

KNOWUNDO_DOMAINS = ("privacy", "copyright")
KNOWUNDO_SPLITS = ("unlearn_train", "unlearn_val", "retention_train", "retention_val")
_ROWS = {"privacy": dict(zip(KNOWUNDO_SPLITS, (400, 110, 441, 108), strict=True))}
"""Rows of the domain whose files could be counted."""

_ON_HUB = DataSet(
    "KnowUnDo",
    "zjunlp/KnowUnDo",
    {
        f"{domain}/{split}": PublishedFile(1, ("train", "val"))
        for domain in KNOWUNDO_DOMAINS
        for split in ("unlearn", "retention")
    },
)
"""The splits as they are on the Hub: one row with two lists."""


def _from_hub(name: str) -> Iterable[Record]:
    split, _, part = name.rpartition("_")
    # One row holds both lists there.
    ((where, lists),) = Tables(_ON_HUB).table(split)
    return ((f"{where}, {part} {number}", row) for number, row in enumerate(lists[part], start=1))


KNOWUNDO_DATA = replace(
    _ON_HUB,
    tables={
        f"{domain}/{split}": PublishedFile(_ROWS.get(domain, {}).get(split), ("text", "labels"))
        for domain in KNOWUNDO_DOMAINS
        for split in KNOWUNDO_SPLITS
    },
    from_hub=_from_hub,
    exact=False,
)


def knowundo_rows(name: str, *, tables: Tables | None = None) -> LoadedRows:
    """Read the rows of `knowundo:DOMAIN:SPLIT`, or with `:N` only the first N."""
    domain, split, count = name_parts(name, "knowundo:DOMAIN:SPLIT", DOMAIN=KNOWUNDO_DOMAINS, SPLIT=KNOWUNDO_SPLITS)
    tables = tables or open_tables(KNOWUNDO_DATA)
    table = f"{domain}/{split}"
    rows = tuple(
        parse_row({"question": columns["text"], "answer": columns["labels"]}, where=where)
        for where, columns in tables.table(table)
    )
    return LoadedRows(first_rows(name, rows, count), name, tables.incomplete())


def knowundo_benchmark(name: str) -> Benchmark:
    """Load one domain, `knowundo:privacy` or `knowundo:copyright`."""
    tables = open_tables(KNOWUNDO_DATA)
    sources = {split: f"{name}:{split}" for split in KNOWUNDO_SPLITS}
    loaded = {split: knowundo_rows(source, tables=tables) for split, source in sources.items()}
    # As the authors do: the model is trained on all rows, and measured on those that methods do not see.
    kept = f"{sources['retention_train']} + {sources['retention_val']}"
    return Benchmark(
        name=name,
        forget_source=sources["unlearn_train"],
        retain_source=sources["retention_train"],
        full_source=f"{sources['unlearn_train']} + {sources['unlearn_val']} + {kept}",
        retain_only_source=kept,
        forget=rows_to_measure(loaded["unlearn_val"].rows),
        retain=rows_to_measure(loaded["retention_val"].rows),
        pool=loaded["retention_train"].rows,
        warnings=tables.incomplete(),
    )
