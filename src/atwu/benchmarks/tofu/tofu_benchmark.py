"""TOFU (Maini et al. 2024) as a `Benchmark`: one forget split with its retain, holdout and real-world sets."""

from __future__ import annotations

from atwu.benchmarks.base import Benchmark, SourceRows
from atwu.benchmarks.dataset_files import Tables, open_tables
from atwu.benchmarks.subsample import rows_to_measure
from atwu.benchmarks.tofu.tofu_rows import FORGET_SPLITS, KEPT_SPLITS, TOFU, tofu_rows


def tofu_benchmark(name: str, *, tables: Tables | None = None) -> Benchmark:
    """Load, check and combine the splits that belong to one forget split.

    Evaluated are the forget rows and, as in TOFU's own evaluation, the retain rows that have wrong answers, at most 400
    of each. A holdout or real-world set that the copy lacks is skipped, with a line in `checked`.

    Args:
        name: `tofu:SPLIT` with `forget01`, `forget05` or `forget10`, or `tofu:SPLIT:N` to use only the first N retain
            rows; the original model is then trained on these and the forget rows.
        tables: the copy to read; by default the one in `ATWU_DATA`, or the Hub's.

    Raises:
        FileNotFoundError: the copy lacks the forget or the retain split.
        ValueError: unknown split, too many retain rows, or a table that differs from the published one.
    """
    split, limited, given = name.partition(":")[2].partition(":")
    if split not in FORGET_SPLITS:
        raise ValueError(f"unknown forget split {split!r} of TOFU; choose one of {', '.join(FORGET_SPLITS)}.")
    if limited and (not given.isdecimal() or int(given) < 1):
        raise ValueError(f"{name!r}: the number of retain rows must be a whole number of at least 1, got {given!r}.")
    tables = open_tables(TOFU) if tables is None else tables
    percent = split.removeprefix("forget")
    forget_source, retain_source = f"tofu:{split}", f"tofu:retain{100 - int(percent)}{limited}{given}"
    loaded: list[SourceRows] = []
    notes: list[str] = []

    def rows(source: str) -> SourceRows:
        loaded.append(tofu_rows(source, tables=tables))
        return loaded[-1]

    def available_rows(name: str) -> SourceRows | None:
        if tables.has(name):
            return rows(f"tofu:{name}")
        notes.append(f"{name} is not available: skipped")
        return None

    forget, pool = rows(forget_source).rows, rows(retain_source).rows
    holdout = available_rows(f"holdout{percent}")
    kept = {name: found.rows for name in KEPT_SPLITS if (found := available_rows(name))}
    with_wrong_answers = [row for row in pool if row.wrong_answers]
    measured_forget, measured_retain = rows_to_measure(forget), rows_to_measure(with_wrong_answers or pool)
    notes.append(
        f"evaluated: {len(measured_forget)} of {len(forget)} forget rows and {len(measured_retain)} of {len(pool)} "
        "retain rows"
    )
    sentences = [sentence for found in loaded for sentence in (*found.checked, *found.warnings)]
    return Benchmark(
        name=name,
        forget_source=forget_source,
        retain_source=retain_source,
        full_source=f"{retain_source} + {forget_source}" if limited else "tofu:full",
        retain_only_source=retain_source,
        forget=measured_forget,
        retain=measured_retain,
        pool=pool,
        holdout=holdout.rows if holdout else (),
        extra_retain=kept,
        checked=tuple(dict.fromkeys([*sentences, *notes])),
    )
