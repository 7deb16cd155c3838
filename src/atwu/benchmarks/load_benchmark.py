"""Every benchmark: how it is named and loaded, its size and licence, what it measures, and where its data are.

Loads one by name, or builds one from the user's own rows.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from atwu.benchmarks.base import Benchmark
from atwu.benchmarks.dataset_files import DATA_VARIABLE, local_folder
from atwu.benchmarks.knowundo import KNOWUNDO_DATA, knowundo_benchmark
from atwu.benchmarks.lume import LUME_DATA, lume_benchmark
from atwu.benchmarks.muse import MUSE_DATA, muse_benchmark
from atwu.benchmarks.people.people_rows import people_benchmark
from atwu.benchmarks.rwku import rwku_benchmark
from atwu.benchmarks.rwku_probes import RWKU_DATA
from atwu.benchmarks.sources import load_rows
from atwu.benchmarks.subsample import rows_to_measure
from atwu.benchmarks.suite import SUITE_HUB, local_topics, suite_benchmark
from atwu.benchmarks.tofu import TOFU, tofu_benchmark
from atwu.benchmarks.wmdp import WMDP_DATA, wmdp_benchmark


@dataclass(frozen=True, slots=True)
class BenchmarkEntry:
    """One benchmark of the list."""

    names: tuple[str, ...]
    """Names for `load_benchmark`; capital letters stand for a choice of the user."""
    load: Callable[[str], Benchmark]
    """Takes the whole name."""
    size: str
    licence: str
    measures: str
    folder: Callable[[], Path | None] | None = None
    """Finds its folder in ATWU_DATA; None if the package has the data."""
    hub: str | None = None
    """Its data set on the Hub."""

    @property
    def prefix(self) -> str:
        """First part of its names."""
        return self.names[0].partition(":")[0]

    def data(self) -> str:
        """Say where the data are, or why they are not at hand."""
        if self.folder is None:
            return "in the package"
        if found := self.folder():
            return f"in {found}"
        if os.environ.get(DATA_VARIABLE):
            return f"not in {DATA_VARIABLE}"
        if self.hub is None:
            return f"{DATA_VARIABLE} is not set"
        return f"Hub: {self.hub}" if importlib.util.find_spec("datasets") else "Hub: pip install 'atwu[hub]'"


CATALOG = (
    BenchmarkEntry(
        ("people:tiny", "people:small", "people:base"),
        people_benchmark,
        "24, 80 or 400 forget rows",
        "that of atwu",
        "facts about invented people, with exact token labels",
    ),
    BenchmarkEntry(
        ("tofu:forget01", "tofu:forget05", "tofu:forget10", "tofu:SPLIT:N"),
        tofu_benchmark,
        "40, 200 or 400 of 4,000 rows",
        "MIT",
        "facts about fictitious authors",
        partial(local_folder, TOFU),
        TOFU.hub,
    ),
    BenchmarkEntry(
        ("rwku", "rwku:FORGET/RETAIN"),
        rwku_benchmark,
        "200 people, 13,131 probes",
        "CC BY 4.0",
        "pretrained knowledge of real people: blanks, questions, attacks, neighbours",
        partial(local_folder, RWKU_DATA),
        RWKU_DATA.hub,
    ),
    BenchmarkEntry(
        ("suite:TOPIC",),
        suite_benchmark,
        "4 topics of 25 facts",
        "MIT",
        "facts that any form of a question brings back; retain rows by distance",
        local_topics,
        SUITE_HUB,
    ),
    BenchmarkEntry(
        ("lume", "lume:N"),
        lume_benchmark,
        "2,732 forget, 2,734 retain rows",
        "Apache-2.0",
        "stories, private data and biographies: completions, exact answers, membership",
        partial(local_folder, LUME_DATA),
    ),
    BenchmarkEntry(
        ("muse:news", "muse:news:FOLD"),
        muse_benchmark,
        "889 forget, 3,555 retain articles",
        "CC BY 4.0",
        "verbatim and knowledge memorization, privacy leakage, utility; larger and successive forget sets",
        partial(local_folder, MUSE_DATA["news"]),
        MUSE_DATA["news"].hub,
    ),
    BenchmarkEntry(
        ("muse:books",),
        muse_benchmark,
        "4 forget books, 25 retain texts",
        "CC BY 4.0",
        "the same for books",
        partial(local_folder, MUSE_DATA["books"]),
        MUSE_DATA["books"].hub,
    ),
    BenchmarkEntry(
        ("wmdp:bio", "wmdp:cyber", "wmdp:DOMAIN:N"),
        wmdp_benchmark,
        "1,273 and 1,987 questions",
        "MIT",
        "hazardous knowledge: accuracy on WMDP and on MMLU",
        partial(local_folder, WMDP_DATA),
        WMDP_DATA.hub,
    ),
    BenchmarkEntry(
        ("knowundo:privacy", "knowundo:copyright"),
        knowundo_benchmark,
        "privacy: 510 forget, 549 retain rows",
        "MIT",
        "what has to go against what lies close to it and has to stay",
        partial(local_folder, KNOWUNDO_DATA),
        KNOWUNDO_DATA.hub,
    ),
)
"""All benchmarks, in the order of the list."""


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Sources of the user's own rows, as `load_rows` reads them."""

    forget: str
    retain: str
    holdout: str | None = None


def load_benchmark(name: str | OwnRows) -> Benchmark:
    """Load a benchmark.

    Args:
        name: one of `CATALOG`, such as `tofu:forget05`; or the user's own rows, of which at most 400 of each set are
            evaluated.

    Raises:
        FileNotFoundError: the data files do not exist.
        ValueError: unknown name, unreadable source, or data that differ from those published.
    """
    if isinstance(name, OwnRows):
        return _own_benchmark(name)
    kind, _, rest = name.partition(":")
    known = [each for entry in CATALOG for each in entry.names]
    for entry in CATALOG:
        if entry.prefix == kind and (rest or name in known):
            return entry.load(name)
    raise ValueError(f"unknown benchmark {name!r}; choose one of {', '.join(known)} (atwu benchmarks describes them).")


def _own_benchmark(rows: OwnRows) -> Benchmark:
    forget, retain = load_rows(rows.forget), load_rows(rows.retain)
    holdout = () if rows.holdout is None else load_rows(rows.holdout).rows
    counts = f"{len(forget.rows)} forget rows from {rows.forget}, {len(retain.rows)} retain rows from {rows.retain}"
    warnings = (f"{loaded.source}: {warning}" for loaded in (forget, retain) for warning in loaded.warnings)
    return Benchmark(
        name=rows.forget,
        forget_source=rows.forget,
        retain_source=rows.retain,
        full_source=f"{rows.forget} + {rows.retain}",
        retain_only_source=rows.retain,
        forget=rows_to_measure(forget.rows),
        retain=rows_to_measure(retain.rows),
        pool=retain.rows,
        holdout=rows_to_measure(holdout),
        checked=(counts, *warnings),
    )
