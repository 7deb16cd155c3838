"""The built-in benchmark of fictitious people as a `Benchmark`: `people:SIZE`. Needs no download."""

from __future__ import annotations

from atwu.benchmarks.base import Benchmark
from atwu.benchmarks.people.people_rows import people
from atwu.benchmarks.subsample import rows_to_measure

RETAIN_STEPS = {"tiny": 1, "small": 7}
"""Size -> n, to evaluate every n-th retain row; other sizes evaluate at most 400, evenly spaced."""


def people_benchmark(name: str) -> Benchmark:
    """Build the benchmark of one size.

    Args:
        name: `people:tiny`, `people:small` or `people:base`.

    Raises:
        ValueError: unknown size.
    """
    size = name.partition(":")[2]
    data = people(size)
    step = RETAIN_STEPS.get(size)
    retain = rows_to_measure(data.retain) if step is None else data.retain[::step]
    sets = {"forget": data.forget, "retain": data.retain, "holdout": data.holdout}
    checked = tuple(
        f"{name}: {len(rows)} {split} rows about {len({row.subject for row in rows})} people"
        for split, rows in sets.items()
    )
    return Benchmark(
        name=name,
        forget_source=f"{name}:forget",
        retain_source=f"{name}:retain",
        full_source=f"{name}:full",
        retain_only_source=f"{name}:retain",
        forget=rows_to_measure(data.forget),
        retain=retain,
        pool=data.retain,
        holdout=data.holdout,
        checked=(*checked, f"{name}: {len(retain)} of {len(data.retain)} retain rows are evaluated"),
    )
