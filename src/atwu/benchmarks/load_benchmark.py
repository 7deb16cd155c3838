"""Load a benchmark by name, or build one from the user's own rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from atwu.benchmarks.base import Benchmark
from atwu.benchmarks.people.people_benchmark import people_benchmark
from atwu.benchmarks.people.people_rows import SIZES
from atwu.benchmarks.rwku.rwku_benchmark import rwku_benchmark
from atwu.benchmarks.sources import load_rows
from atwu.benchmarks.subsample import rows_to_measure
from atwu.benchmarks.suite.suite_benchmark import suite_benchmark
from atwu.benchmarks.tofu.tofu_benchmark import tofu_benchmark
from atwu.benchmarks.tofu.tofu_rows import FORGET_SPLITS

BENCHMARKS: Mapping[str, Callable[[str], Benchmark]] = {
    "people": people_benchmark,
    "tofu": tofu_benchmark,
    "rwku": rwku_benchmark,
    "suite": suite_benchmark,
}
"""Prefix of a benchmark name -> its loader, which takes the whole name."""


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Sources of the user's own rows, as `load_rows` reads them."""

    forget: str
    retain: str
    holdout: str | None = None


def load_benchmark(name: str | OwnRows) -> Benchmark:
    """Load a benchmark.

    Args:
        name: `people:SIZE`; `tofu:SPLIT` for a forget split, or `tofu:SPLIT:N` with only its first N retain rows;
        `rwku`, or `rwku:` with the argument of `atwu.benchmarks.rwku.rwku_benchmark`; `suite:TOPIC`; or the user's
        own rows, of which at most 400 of each set are evaluated.

    Raises:
        FileNotFoundError: the data files do not exist.
        ValueError: unknown name, unreadable source, or data that differ from those published.
    """
    if isinstance(name, OwnRows):
        return _own_benchmark(name)
    kind, _, rest = name.partition(":")
    if kind in BENCHMARKS and (rest or name == "rwku"):
        return BENCHMARKS[kind](name)
    raise ValueError(
        f"unknown benchmark {name!r}; choose one of {', '.join(f'people:{size}' for size in SIZES)}, "
        f"{', '.join(f'tofu:{split}' for split in FORGET_SPLITS)} (with :N for the first N retain rows only), "
        "rwku or rwku:SUBJECTS, suite:TOPIC."
    )


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
