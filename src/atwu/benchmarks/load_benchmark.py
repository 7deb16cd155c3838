"""Load a benchmark by name, or build one from the user's own rows."""

from __future__ import annotations

from dataclasses import dataclass

from atwu.benchmarks.base import Benchmark, rows_to_measure
from atwu.benchmarks.catalog import all_benchmarks, find_entry
from atwu.benchmarks.sources import load_rows


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Sources of the user's own rows, as `load_rows` reads them."""

    forget: str
    retain: str
    holdout: str | None = None


def load_benchmark(name: str | OwnRows) -> Benchmark:
    """Load a benchmark.

    Args:
        name: one of `atwu benchmarks`, such as `tofu:forget05`; or the user's own rows, of which at most 400 of each set are
            evaluated.

    Raises:
        FileNotFoundError: the data files do not exist.
        ValueError: unknown name, unreadable source, or data that differ from those published.
    """
    if isinstance(name, OwnRows):
        return _own_benchmark(name)
    known = [each for entry in all_benchmarks() for each in entry.names]
    entry = find_entry(name)
    if entry is None or not (name.partition(":")[2] or name in known):
        raise ValueError(
            f"unknown benchmark {name!r}; choose one of {', '.join(known)} (atwu benchmarks describes them)."
        )
    return entry.load(name)


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
