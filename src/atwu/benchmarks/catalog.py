"""Every benchmark: how it and its rows are named and loaded, its size and licence, what it measures, and where its data are.

A new one is an entry here and a file with its two functions, such as `wmdp.py`; other packages add theirs with
`register_benchmark`. Own row files need none (`OwnRows`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

from atwu._extras import load_entry_points
from atwu._names import Registry
from atwu.benchmarks.base import Benchmark, LoadedRows
from atwu.benchmarks.dataset_files import DATA_VARIABLE, DataSet, local_folder
from atwu.benchmarks.knowundo import KNOWUNDO_DATA, knowundo_benchmark, knowundo_rows
from atwu.benchmarks.lume import LUME_DATA, lume_benchmark, lume_rows
from atwu.benchmarks.muse import MUSE_DATA, muse_benchmark, muse_rows
from atwu.benchmarks.people_rows import PEOPLE_SPLITS, people_benchmark, people_rows
from atwu.benchmarks.rwku import RWKU_DATA, rwku_benchmark, rwku_rows
from atwu.benchmarks.suite import SUITE_DATA, suite_benchmark, suite_rows
from atwu.benchmarks.tofu import TOFU, tofu_benchmark, tofu_rows
from atwu.benchmarks.wmdp import WMDP_DATA, wmdp_benchmark, wmdp_rows


@dataclass(frozen=True, slots=True)
class BenchmarkEntry:
    names: tuple[str, ...]
    """Names for `load_benchmark`; capital letters stand for a choice of the user."""
    load: Callable[[str], Benchmark]
    """Takes the whole name."""
    source: str
    """Form of the names of its rows, for `load_rows`."""
    rows: Callable[[str], LoadedRows]
    """Takes the whole name of a source."""
    size: str
    licence: str
    measures: str
    published: tuple[DataSet, ...] = ()
    """Empty if the package has the data."""

    @property
    def prefix(self) -> str:
        return self.names[0].partition(":")[0]

    def data(self) -> str:
        """Say where the data are, or why they are not at hand."""
        if not self.published:
            return "in the package"
        return "; ".join(dict.fromkeys(map(_place, self.published)))


def _place(published: DataSet) -> str:
    # A folder comes first, as when rows are loaded.
    folder = local_folder(published)
    if folder is not None:
        return f"in {folder}"
    if os.environ.get(DATA_VARIABLE):
        return f"not in {DATA_VARIABLE}"
    # Some authors give their files on request, or elsewhere.
    if not any(table.on_hub for table in published.tables.values()):
        return f"{DATA_VARIABLE} is not set"
    return f"Hub: {published.hub}"


_SHIPPED = (
    BenchmarkEntry(
        ("people:tiny", "people:small", "people:base"),
        people_benchmark,
        f"people:SIZE:SPLIT[:N] (splits {', '.join(PEOPLE_SPLITS)})",
        people_rows,
        "24, 80 or 400 forget rows",
        "that of atwu",
        "facts about invented people, with exact token labels",
    ),
    BenchmarkEntry(
        ("tofu:forget01", "tofu:forget05", "tofu:forget10", "tofu:SPLIT:N"),
        tofu_benchmark,
        "tofu:SPLIT[:N]",
        tofu_rows,
        "40, 200 or 400 of 4,000 rows",
        "MIT",
        "facts about fictitious authors",
        (TOFU,),
    ),
    BenchmarkEntry(
        ("rwku", "rwku:FORGET/RETAIN"),
        rwku_benchmark,
        "rwku:SUBJECTS:KIND[:N]",
        rwku_rows,
        "200 people, 13,131 probes",
        "CC BY 4.0",
        "pretrained knowledge of real people: blanks, questions, attacks, neighbours",
        (RWKU_DATA,),
    ),
    BenchmarkEntry(
        ("suite:TOPIC",),
        suite_benchmark,
        "suite:TOPIC:SPLIT[:N]",
        suite_rows,
        "4 topics of 25 facts",
        "MIT",
        "facts that any form of a question brings back; retain rows by distance",
        (SUITE_DATA,),
    ),
    BenchmarkEntry(
        ("lume", "lume:N"),
        lume_benchmark,
        "lume:SPLIT[:N]",
        lume_rows,
        "2,732 forget, 2,734 retain rows",
        "Apache-2.0",
        "stories, private data and biographies: completions, exact answers, membership",
        (LUME_DATA,),
    ),
    BenchmarkEntry(
        ("muse:news", "muse:news:FOLD", "muse:books"),
        muse_benchmark,
        "muse:CORPUS:SPLIT[:N]",
        muse_rows,
        "news: 889 forget, 3,555 retain articles; books: 4 forget books, 25 retain texts",
        "CC BY 4.0",
        "verbatim and knowledge memorization, privacy leakage, utility; larger and successive forget sets of news",
        tuple(MUSE_DATA.values()),
    ),
    BenchmarkEntry(
        ("wmdp:bio", "wmdp:cyber", "wmdp:DOMAIN:N"),
        wmdp_benchmark,
        "wmdp:DOMAIN:SPLIT[:N]",
        wmdp_rows,
        "1,273 and 1,987 questions",
        "MIT",
        "hazardous knowledge: accuracy on WMDP and on MMLU",
        (WMDP_DATA,),
    ),
    BenchmarkEntry(
        ("knowundo:privacy", "knowundo:copyright"),
        knowundo_benchmark,
        "knowundo:DOMAIN:SPLIT[:N]",
        knowundo_rows,
        "privacy: 510 forget, 549 retain rows",
        "MIT",
        "what has to go against what lies close to it and has to stay",
        (KNOWUNDO_DATA,),
    ),
)
BENCHMARKS = Registry[BenchmarkEntry]("benchmark", {entry.prefix: entry for entry in _SHIPPED})
"""First word of its names -> benchmark."""


def register_benchmark(entry: BenchmarkEntry) -> BenchmarkEntry:
    """Add a benchmark, whose names and rows every command then accepts.

    Raises:
        ValueError: its names do not share one first word, or another benchmark has this word.
    """
    # The first word alone tells which benchmark a name is of.
    if any(name.partition(":")[0] != entry.prefix for name in (*entry.names, entry.source)):
        raise ValueError(f"{', '.join((*entry.names, entry.source))} must all begin with {entry.prefix!r}.")
    # The module of an entry point may have registered it.
    if BENCHMARKS.get(entry.prefix) != entry:
        BENCHMARKS.add(entry.prefix, entry)
    return entry


@functools.cache
def _load_plugins() -> None:
    load_entry_points("atwu.benchmarks", register_benchmark)


def all_benchmarks() -> tuple[BenchmarkEntry, ...]:
    """All benchmarks, in the order of the list; those of installed packages last."""
    _load_plugins()
    return tuple(BENCHMARKS.values())


def find_entry(name: str) -> BenchmarkEntry | None:
    """Return the benchmark that a name of a benchmark or source begins with."""
    _load_plugins()
    # By the first word only: a name that is wrong behind it gets the benchmark's own message.
    return BENCHMARKS.get(name.partition(":")[0])
