"""TOFU (Maini et al. 2024) as a `Benchmark`: one forget split, with everything that goes with it."""

from __future__ import annotations

from atwu.benchmarks.benchmark import Benchmark
from atwu.benchmarks.spread import measured
from atwu.benchmarks.tofu.rows import FORGET_SPLITS, KEPT_SPLITS, TofuRows, tofu_rows
from atwu.benchmarks.tofu.tables import TofuTables, open_tables


def tofu_benchmark(split: str, *, retain_rows: int | None = None, tables: TofuTables | None = None) -> Benchmark:
    """Load, check and join the splits that belong to one forget split.

    Measured are the forget rows and, as in TOFU's own evaluation, the retain rows that have wrong answers, at most 400
    of either. A hold-out split or a set of real facts that the copy lacks is left out, with a line in `checked`.

    Args:
        split: `forget01`, `forget05` or `forget10`.
        retain_rows: keep only the first so many retain rows, for miniatures; a model that is trained for the benchmark
            then learns these and the forget rows.
        tables: the copy to read from; by default the one that `ATWU_DATA` points to, or the Hub's.

    Raises:
        FileNotFoundError: the copy lacks the forget or the retain split.
        ValueError: unknown split, too many retain rows, or a table that is not as published.
    """
    if split not in FORGET_SPLITS:
        raise ValueError(f"unknown forget split {split!r} of TOFU; choose one of {', '.join(FORGET_SPLITS)}.")
    tables = open_tables() if tables is None else tables
    percent = split.removeprefix("forget")
    count = "" if retain_rows is None else f":{retain_rows}"
    forget_source, retain_source = f"tofu:{split}", f"tofu:retain{100 - int(percent)}{count}"
    loaded: list[TofuRows] = []
    notes: list[str] = []

    def rows(source: str) -> TofuRows:
        loaded.append(tofu_rows(source, tables=tables))
        return loaded[-1]

    def rows_at_hand(name: str) -> TofuRows | None:
        if tables.has(name):
            return rows(f"tofu:{name}")
        notes.append(f"{name} is not at hand: left out")
        return None

    forget, pool = rows(forget_source).rows, rows(retain_source).rows
    holdout = rows_at_hand(f"holdout{percent}")
    kept = {name: found.rows for name in KEPT_SPLITS if (found := rows_at_hand(name))}
    with_wrong_answers = [row for row in pool if row.wrong_answers]
    measured_forget, measured_retain = measured(forget), measured(with_wrong_answers or pool)
    notes.append(
        f"measured: {len(measured_forget)} of {len(forget)} forget rows and {len(measured_retain)} of {len(pool)} "
        "retain rows"
    )
    sentences = [sentence for found in loaded for sentence in (*found.checked, *found.warnings)]
    return Benchmark(
        name=f"tofu:{split}{count}",
        forget_source=forget_source,
        retain_source=retain_source,
        full_source="tofu:full" if retain_rows is None else f"{retain_source} + {forget_source}",
        retain_only_source=retain_source,
        forget=measured_forget,
        retain=measured_retain,
        pool=pool,
        holdout=holdout.rows if holdout else (),
        kept=kept,
        checked=tuple(dict.fromkeys([*sentences, *notes])),
    )
