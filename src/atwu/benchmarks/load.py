"""Rows of one's own as a benchmark."""

from __future__ import annotations

from dataclasses import dataclass

from atwu.benchmarks.benchmark import Benchmark
from atwu.benchmarks.sources import load_rows
from atwu.benchmarks.spread import measured


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Sources as `load_rows` reads them."""

    forget: str
    retain: str
    holdout: str | None = None


def own_benchmark(rows: OwnRows) -> Benchmark:
    """Measure on the rows themselves, at most 400 of each kind.

    Raises:
        ValueError, FileNotFoundError: a source that cannot be read.
    """
    forget, retain = load_rows(rows.forget), load_rows(rows.retain)
    holdout = () if rows.holdout is None else load_rows(rows.holdout).rows
    counts = f"{len(forget.rows)} forget rows from {rows.forget}, {len(retain.rows)} retain rows from {rows.retain}"
    warnings = (f"{loaded.source}: {warning}" for loaded in (forget, retain) for warning in loaded.warnings)
    return Benchmark(
        name=rows.forget,
        forget_source=rows.forget,
        retain_source=rows.retain,
        full_source=None,
        retain_only_source=None,
        forget=measured(forget.rows),
        retain=measured(retain.rows),
        pool=retain.rows,
        holdout=measured(holdout),
        checked=(counts, *warnings),
    )
