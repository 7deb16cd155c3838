"""The result of an evaluation: a typed, versioned record, its JSON file, and its text, data frame and HTML table.

Besides aggregate values it holds the values of single rows, from which intervals and paired differences can be
recomputed.
"""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, with_config

from atwu._cache import short_hash
from atwu._file_reading import read_declared, type_adapter
from atwu._files import write_json
from atwu.data.schema import Example
from atwu.evaluation.columns import OVERALL, Direction

if TYPE_CHECKING:
    import pandas as pd

EVAL_SCHEMA_NAME: Final = "atwu.eval/3"
# A file has every key, those with defaults too, and the schema says so.
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, json_schema_serialization_defaults_required=True)
"""Unknown keys and wrong types are errors."""

Count = Annotated[int, Field(ge=0)]
ARROWS: dict[Direction, str] = {"up": " ↑", "down": " ↓", "none": ""}
FIELDS = ("value", "low", "high", "n", "direction", "std", "clusters", "skipped", "unscored", "seeds", "seed_std")
"""Columns of the data frame, after set and metric."""


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class MetricValue:
    """One value with its uncertainty."""

    value: float | None
    """None if undefined."""
    n: Count
    """Number of rows."""
    direction: Direction
    """Which way is better on this set."""
    std: float | None = None
    """Standard deviation over rows."""
    low: float | None = None
    """Lower end of the 95 % bootstrap interval over subjects; None with fewer than two subjects."""
    high: float | None = None
    clusters: Count = 0
    """Number of subjects; with few subjects the interval is too narrow."""
    skipped: Count = 0
    """Rows on which the metric is undefined."""
    unscored: Count = 0
    """Answers without a readable verdict; left out of the value."""
    digits: Count = 3
    """Decimals to print."""
    seeds: Count = 1
    """Number of training runs averaged."""
    seed_std: float | None = None
    """Standard deviation over training runs; None for a single run."""

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"interval [{self.low}, {self.high}]: the lower end is above the upper end.")


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class RowValues:
    """Values of the rows of one set, in order."""

    ids: tuple[str, ...]
    """ID of every row: a hash of its text, equal in all results."""
    subjects: tuple[str, ...]
    """Cluster of every row: its subject, or its ID if it has no subject."""
    metrics: dict[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Metric name -> one value per row; None where undefined."""
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Name -> generated text per row."""
    unscored: dict[str, Count] = field(default_factory=dict)
    """Metric name -> number of answers without a readable verdict."""


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class EvalResult:
    """All values of one evaluation."""

    model: str
    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    sets: Mapping[str, Mapping[str, MetricValue]]
    """Set name (forget, retain, ...) -> metric name -> value."""
    overall: Mapping[str, MetricValue]
    """Values that need several sets or a reference model, by name."""
    rows: Mapping[str, RowValues]
    settings: Mapping[str, Any]
    """All settings: limits, options of metrics, seeds, judge."""
    versions: Mapping[str, str]
    references: Mapping[str, str] = field(default_factory=dict)
    """`original` and `retain-only`, if given -> fingerprint of that model."""
    cost: Mapping[str, int | float | None] = field(default_factory=dict)
    """Generated tokens, judge tokens and price; replies from the cache count as if paid now."""
    warnings: tuple[str, ...] = ()
    schema: Literal["atwu.eval/3"] = EVAL_SCHEMA_NAME

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON that satisfies `EVAL_SCHEMA`; NaN becomes null."""
        # Through JSON, in which pydantic writes NaN as null.
        return {"schema": self.schema, **json.loads(type_adapter(EvalResult).dump_json(self))}

    def write(self, path: str | Path) -> None:
        """Write the JSON file atomically."""
        write_json(path, self.to_json())

    def summary(self) -> str:
        """Return every value with its interval, and the warnings, as text."""
        parts = [self.model]
        table = self._shown()
        if not table.empty:
            parts.append(table.to_string(index=False))
        parts += [textwrap.fill(f"warning: {warning}", 80) for warning in self.warnings]
        return "\n\n".join(parts)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per value: set, metric, value, low, high, n, direction and further fields."""
        import pandas as pd

        rows = [
            {"set": split, "metric": metric} | {name: getattr(value, name) for name in FIELDS}
            for split, metric, value in measured_numbers(self)
        ]
        return pd.DataFrame(rows, columns=("set", "metric", *FIELDS))

    def _shown(self) -> pd.DataFrame:
        """Return every value as it is displayed, with an arrow for the better direction."""
        import pandas as pd

        rows = [
            (
                split,
                metric + ARROWS[value.direction],
                value.n,
                format_number(value.value, value.digits),
                format_interval(value),
            )
            for split, metric, value in measured_numbers(self)
        ]
        return pd.DataFrame(rows, columns=("set", "metric", "rows", "value", "95 % interval"))

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>warning: {html.escape(warning)}</p>" for warning in self.warnings)
        return f"<p>{html.escape(self.model)}</p>{self._shown().to_html(index=False)}{notes}"


def row_id(example: Example) -> str:
    """Return the ID of a row; equal rows have equal IDs."""
    # 64 bits: of a million rows, two have equal IDs by chance once in 37 million sets.
    return short_hash([[message.role, message.content] for message in example.messages] + [example.answer])[:16]


def read_result(path: str | Path) -> EvalResult:
    """Read a result file.

    Raises:
        FileNotFoundError: No such file.
        ValueError: Not a result, or one of another schema; the message names the place and what is allowed.
    """
    return read_declared(path, EvalResult, EVAL_SCHEMA_NAME, what="result", made_by="atwu evaluate --output")


def format_number(value: float | None, digits: int) -> str:
    """Format a number; zero has no minus sign."""
    # A small negative number is rounded to "-0.000".
    shown = f"{value:.{digits}f}"
    if not shown.strip("-0."):
        return shown.removeprefix("-")
    return shown


def format_interval(cell: MetricValue) -> str:
    """Return `[low, high]`, or "" if the value has no interval."""
    if cell.low is None or cell.high is None:
        return ""
    return f"[{format_number(cell.low, cell.digits)}, {format_number(cell.high, cell.digits)}]"


def measured_numbers(result: EvalResult) -> Iterator[tuple[str, str, MetricValue]]:
    """Yield (set, metric, value) of every defined value, set by set, aggregate metrics last."""
    for split, values in [*result.sets.items(), (OVERALL, result.overall)]:
        for metric, value in values.items():
            if value.value is not None and not math.isnan(value.value):
                yield split, metric, value


EVAL_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **type_adapter(EvalResult).json_schema(mode="serialization"),
    "title": "Result of atwu evaluate",
}
"""JSON Schema of `eval.json`."""
