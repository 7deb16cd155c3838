"""The result of an evaluation: a declared, versioned type that is applied on reading, and its JSON.

Numbers come with what is needed to read them, and with the values of the single rows, from which intervals and paired
differences between models are computed again at any time. Reading goes through pydantic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from atwu._cache import short_hash
from atwu._file_reading import read_declared, type_adapter
from atwu._files import write_json
from atwu.data.schema import Example

if TYPE_CHECKING:
    import pandas as pd

EVAL_SCHEMA_NAME: Final = "atwu.eval/3"
_OLDER = " Files of atwu.eval/1 hold no values of single rows and cannot be converted."
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, json_schema_serialization_defaults_required=True)
"""Files hold the declared keys and kinds and nothing else."""

Direction = Literal["up", "down", "none"]
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One number with what is needed to read it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    value: float | None
    """None when nothing could be measured."""
    n: Count
    """Rows it was measured on."""
    direction: Direction
    """Which way is better on this set."""
    std: float | None = None
    """Standard deviation over rows."""
    low: float | None = None
    """Lower end of the 95 % bootstrap interval, subjects drawn with replacement; None with fewer than two subjects."""
    high: float | None = None
    """Upper end."""
    clusters: Count = 0
    """Subjects the interval rests on; with few of them it is too narrow."""
    skipped: Count = 0
    """Rows left out because the metric is undefined on them."""
    unscored: Count = 0
    """Answers without a readable verdict; they count neither as right nor as wrong."""
    digits: Count = 3
    """Decimals worth printing."""
    seeds: Count = 1
    """Training runs it is the mean of."""
    seed_std: float | None = None
    """Standard deviation over these runs; None for a single one."""

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"an interval from {self.low} to {self.high} is upside down.")


@dataclass(frozen=True, slots=True)
class RowValues:
    """What was measured on the single rows of one set, in order."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    ids: tuple[str, ...]
    """Name of every row, a hash of its text; the same row has the same name in every result."""
    subjects: tuple[str, ...]
    """Cluster of every row: its subject, or its own name where none is known."""
    metrics: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Metric name -> one value per row; None where there is none."""
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name -> what the model said to every row."""
    unscored: Mapping[str, Count] = field(default_factory=dict)
    """Metric name -> answers without a readable verdict."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Everything one evaluation measured."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    model: str
    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    sets: Mapping[str, Mapping[str, MetricValue]]
    """Set name (forget, retain, ...) -> metric name -> value."""
    overall: Mapping[str, MetricValue]
    """Metrics that need several sets or a second model, by name."""
    rows: Mapping[str, RowValues]
    settings: Mapping[str, Any]
    """Everything that was chosen: limits, variants, seeds, judge."""
    versions: Mapping[str, str]
    references: Mapping[str, str] = field(default_factory=dict)
    """`original` and `retain-only`, where given -> fingerprint of that model."""
    cost: Mapping[str, int | float | None] = field(default_factory=dict)
    """Tokens generated and judged and their price for this result, whether paid now or in an earlier, stored run."""
    curves: Mapping[str, Any] = field(default_factory=dict)
    """Name -> curve, such as pooled ROC curves of token scores."""
    warnings: tuple[str, ...] = ()
    schema: Literal["atwu.eval/3"] = EVAL_SCHEMA_NAME

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that satisfies `EVAL_SCHEMA`; NaN becomes null."""
        return {"schema": self.schema, **json.loads(type_adapter(EvalResult).dump_json(self))}

    def write(self, path: str | Path) -> None:
        """Write the JSON so that a reader sees the old file or the whole new one."""
        write_json(path, self.to_json())

    def summary(self) -> str:
        """Every number with its interval, and the warnings, for a terminal of 80 columns."""
        from atwu.evaluation.formatting import result_text

        return result_text(self)

    def to_pandas(self) -> pd.DataFrame:
        """One row per number: set, metric, value, low, high, n, direction, and what is needed to read it."""
        from atwu.evaluation.formatting import result_frame

        return result_frame(self)

    def _repr_html_(self) -> str:
        from atwu.evaluation.formatting import result_html

        return result_html(self)


def row_id(example: Example) -> str:
    """Name of a row: equal rows have equal names."""
    return short_hash([[message.role, message.content] for message in example.messages] + [example.answer])[:16]


def read_result(path: str | Path) -> EvalResult:
    """Read what `EvalResult.write` wrote.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a result, or of another version of its schema; names the place, what is there, what may be.
    """
    return read_declared(
        path, EvalResult, EVAL_SCHEMA_NAME, what="result", made_by="atwu evaluate --output", older=_OLDER
    )


EVAL_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **type_adapter(EvalResult).json_schema(mode="serialization"),
    "title": "Result of atwu evaluate",
}
"""JSON Schema of `eval.json`."""
