"""Benchmarks by name: which rows to remove, which to keep, and which to measure on."""

from __future__ import annotations

from atwu.benchmarks.benchmark import Benchmark

__all__ = ["Benchmark", "load_benchmark"]


def load_benchmark(name: str) -> Benchmark:
    """Load a benchmark.

    Args:
        name: `people:SIZE`; `tofu:SPLIT` for a forget split, or `tofu:SPLIT:N` with its first N retain rows only;
            `rwku`, or `rwku:` and what `atwu.benchmarks.rwku.benchmark` takes.

    Raises:
        FileNotFoundError: its data are not at hand.
        ValueError: unknown name, or data that are not as published.
    """
    kind, colon, rest = name.partition(":")
    if kind == "people" and rest:
        from atwu.benchmarks.people.benchmark import people_benchmark

        return people_benchmark(rest)
    if kind == "tofu" and rest:
        from atwu.benchmarks.tofu.benchmark import tofu_benchmark

        split, limited, count = rest.partition(":")
        if not limited:
            return tofu_benchmark(split)
        if not count.isdecimal() or int(count) < 1:
            raise ValueError(
                f"{name!r}: the number of retain rows must be a whole number of at least 1, got {count!r}."
            )
        return tofu_benchmark(split, retain_rows=int(count))
    if kind == "rwku" and (rest or not colon):
        from atwu.benchmarks.rwku.benchmark import rwku_benchmark

        return rwku_benchmark(name)
    from atwu.benchmarks.people.rows import SIZES
    from atwu.benchmarks.tofu.rows import FORGET_SPLITS

    raise ValueError(
        f"unknown benchmark {name!r}; choose one of {', '.join(f'people:{size}' for size in SIZES)}, "
        f"{', '.join(f'tofu:{split}' for split in FORGET_SPLITS)} (with :N for the first N retain rows only), "
        "rwku or rwku:SUBJECTS."
    )
