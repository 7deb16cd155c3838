"""Result tables of the ATWU paper and of benchmarks, for comparison. One CSV file per table, one row per method or variant.

ES and ROUGE-L are fractions; J, FQ, RD, UQ, MMLU and win rates are percentages, as in our own results. The paper's
final runs use one seed. Tables of benchmarks name their source. An empty cell means that no number was published.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from atwu._names import lookup

PUBLISHED_FOLDER = Path(__file__).parent
_DEGRADED = "(!)"


@dataclass(frozen=True, slots=True)
class PublishedTable:
    name: str
    title: str
    notes: tuple[str, ...]
    """Caveats of the comparison."""
    metrics: tuple[str, ...]
    rows: Mapping[str, Mapping[str, float]]
    """Label -> metric -> number. Labels are names of methods, of variants, or `original`, the original model."""
    degraded: frozenset[tuple[str, str]]
    """(label, metric) marked as materially degraded: MMLU lower by more than 2 points, repetitiveness higher by more
    than 5 %, win rate below 45.
    """


def published_tables() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in PUBLISHED_FOLDER.glob("*.csv")))


@functools.cache
def published_table(name: str) -> PublishedTable:
    lookup("published table", name, dict.fromkeys(published_tables()))
    lines = (PUBLISHED_FOLDER / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    title, *notes = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    reader = csv.DictReader(line for line in lines if not line.startswith("#"))
    rows: dict[str, dict[str, float]] = {}
    degraded = set()
    for line in reader:
        label = line.pop("label")
        rows[label] = {metric: float(cell.removesuffix(_DEGRADED)) for metric, cell in line.items() if cell}
        degraded |= {(label, metric) for metric, cell in line.items() if cell.endswith(_DEGRADED)}
    metrics = tuple(reader.fieldnames or ())[1:]
    return PublishedTable(name, title, tuple(notes), metrics, rows, frozenset(degraded))
