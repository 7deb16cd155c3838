"""WMDP (Li et al. 2024): hazardous knowledge in biology and computer security, unlearned from papers and code.

The corpora are texts, split into chunks (`text_chunks`). What a model knows is measured by multiple-choice questions
through lm-evaluation-harness (`--task wmdp_bio`), beside `mmlu`. The forget corpus of biology has to be requested from the
authors; the other three are on the Hub.
"""

from __future__ import annotations

from atwu.benchmarks.base import Benchmark, LoadedRows, name_parts, rows_to_measure, text_chunks
from atwu.benchmarks.dataset_files import DataSet, PublishedFile, Tables, open_tables
from atwu.data.schema import Example

WMDP_DOMAINS = ("bio", "cyber")
WMDP_SPLITS = ("forget", "retain")
MOST_DOCUMENTS = 1000
"""Documents that are read without a number, all of the smallest corpus: the largest has 60,887, of 2 GB."""

_ROWS = {
    "bio-forget-corpus": None,
    "bio-retain-corpus": 60887,
    "cyber-forget-corpus": 1000,
    "cyber-retain-corpus": 4473,
}
WMDP_DATA = DataSet(
    "WMDP",
    "cais/wmdp-corpora",
    {table: PublishedFile(rows, ("text",), on_hub=rows is not None) for table, rows in _ROWS.items()},
    split="train",
)


def wmdp_rows(name: str, *, tables: Tables | None = None) -> LoadedRows:
    """Read the first 1000 documents of `wmdp:DOMAIN:SPLIT`, or the first N of `wmdp:DOMAIN:SPLIT:N`."""
    domain, split, count = name_parts(name, "wmdp:DOMAIN:SPLIT", DOMAIN=WMDP_DOMAINS, SPLIT=WMDP_SPLITS)
    tables = tables or open_tables(WMDP_DATA)
    table = f"{domain}-{split}-corpus"
    # Only the first ones are read: a corpus may have gigabytes.
    documents = [columns["text"] for _, columns in tables.first(table, count or MOST_DOCUMENTS)]
    rows = tuple(
        Example((), chunk, subject=f"{split} {number}")
        for number, text in enumerate(documents, start=1)
        for chunk in text_chunks(text)
    )
    return LoadedRows(rows, name)


def wmdp_benchmark(name: str) -> Benchmark:
    """Load `wmdp:bio` or `wmdp:cyber`, or with `:N` only the first N documents of each corpus instead of 1000."""
    domain, count = name_parts(name, "wmdp:DOMAIN", DOMAIN=WMDP_DOMAINS)
    tables = open_tables(WMDP_DATA)
    forget, retain = (f"wmdp:{domain}:{split}" for split in WMDP_SPLITS)
    if count:
        forget, retain = f"{forget}:{count}", f"{retain}:{count}"
    removed, kept = (wmdp_rows(source, tables=tables) for source in (forget, retain))
    return Benchmark(
        name=name,
        forget_source=forget,
        retain_source=retain,
        full_source=f"{forget} + {retain}",
        retain_only_source=retain,
        forget=rows_to_measure(removed.rows),
        retain=rows_to_measure(kept.rows),
        pool=kept.rows,
    )
