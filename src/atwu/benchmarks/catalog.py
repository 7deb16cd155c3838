"""Every benchmark: how it is named and loaded, its size and licence, what it measures, and where its data are."""

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
from atwu.benchmarks.rwku.rwku_rows import rwku_benchmark
from atwu.benchmarks.rwku.rwku_tables import RWKU_DATA
from atwu.benchmarks.suite.suite_rows import suite_benchmark
from atwu.benchmarks.suite.suite_tables import SUITE_HUB, local_topics
from atwu.benchmarks.tofu.tofu_rows import TOFU, tofu_benchmark
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
