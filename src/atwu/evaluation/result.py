"""The result of an evaluation: a declared, versioned type, its JSON, and reading it back.

Numbers come with what is needed to read them, and with the values of the single rows, from which intervals and paired
differences between models are computed again at any time.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from atwu._cache import short_hash
from atwu._files import write_json
from atwu.data.schema import Example

SCHEMA_NAME = "atwu.eval/2"

Direction = Literal["up", "down", "none"]


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One number with what is needed to read it."""

    value: float | None
    """None when nothing could be measured."""
    n: int
    """Rows it was measured on."""
    direction: Direction
    """Which way is better on this set."""
    std: float | None = None
    """Standard deviation over rows."""
    low: float | None = None
    """Lower end of the 95 % bootstrap interval, subjects drawn with replacement; None with fewer than two subjects."""
    high: float | None = None
    """Upper end."""
    clusters: int = 0
    """Subjects the interval rests on; with few of them it is too narrow."""
    skipped: int = 0
    """Rows left out because the metric is undefined on them."""
    unscored: int = 0
    """Answers without a readable verdict; they count neither as right nor as wrong."""
    digits: int = 3
    """Decimals worth printing."""
    seeds: int = 1
    """Training runs it is the mean of."""
    seed_std: float | None = None
    """Standard deviation over these runs; None for a single one."""


@dataclass(frozen=True, slots=True)
class RowValues:
    """What was measured on the single rows of one set, in order."""

    ids: tuple[str, ...]
    """Name of every row, a hash of its text; the same row has the same name in every result."""
    subjects: tuple[str, ...]
    """Cluster of every row: its subject, or its own name where none is known."""
    metrics: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Metric name -> one value per row; None where there is none."""
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name -> what the model said to every row."""
    unscored: Mapping[str, int] = field(default_factory=dict)
    """Metric name -> answers without a readable verdict."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Everything one evaluation measured."""

    model: str
    fingerprint: str
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
    cost: Mapping[str, float] = field(default_factory=dict)
    """Tokens generated and judged and their price for this result, whether paid now or in an earlier, stored run."""
    curves: Mapping[str, Any] = field(default_factory=dict)
    """Name -> curve, such as pooled ROC curves of token scores."""
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that satisfies `EVAL_SCHEMA`; NaN becomes null."""
        plain = _without_nan(dataclasses.asdict(self))
        return {"schema": SCHEMA_NAME} | plain  # type: ignore[no-any-return]

    def write(self, path: str | Path) -> None:
        """Write the JSON so that a reader sees the old file or the whole new one."""
        write_json(path, self.to_json())


def row_id(example: Example) -> str:
    """Name of a row: equal rows have equal names."""
    return short_hash([[message.role, message.content] for message in example.messages] + [example.answer])[:16]


def read_result(path: str | Path) -> EvalResult:
    """Read what `EvalResult.write` wrote.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a result, or of another version of its schema.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"result {path} not found; atwu evaluate --output writes one.")
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a result of atwu evaluate: {error}.") from None
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA_NAME:
        found = plain.get("schema") if isinstance(plain, dict) else None
        raise ValueError(
            f"{path} has the schema {found!r} and {SCHEMA_NAME!r} is read; make it again with atwu evaluate."
        )
    try:
        return EvalResult(
            sets={split: _metrics(values) for split, values in plain["sets"].items()},
            overall=_metrics(plain["overall"]),
            rows={split: _rows(values) for split, values in plain["rows"].items()},
            warnings=tuple(plain["warnings"]),
            **{
                name: plain[name]
                for name in ("model", "fingerprint", "settings", "versions", "references", "cost", "curves")
            },
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}; make it again with atwu evaluate.") from None


def _metrics(plain: Mapping[str, Any]) -> dict[str, MetricValue]:
    return {name: MetricValue(**value) for name, value in plain.items()}


def _rows(plain: Mapping[str, Any]) -> RowValues:
    return RowValues(
        ids=tuple(plain["ids"]),
        subjects=tuple(plain["subjects"]),
        metrics={name: tuple(values) for name, values in plain["metrics"].items()},
        texts={name: tuple(values) for name, values in plain["texts"].items()},
        unscored=dict(plain["unscored"]),
    )


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_NUMBER = {"type": ["number", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_METRIC = {
    "type": "object",
    "required": [f.name for f in dataclasses.fields(MetricValue)],
    "additionalProperties": False,
    "properties": {
        "value": _NUMBER,
        "n": _COUNT,
        "direction": {"enum": ["up", "down", "none"]},
        "std": _NUMBER,
        "low": _NUMBER,
        "high": _NUMBER,
        "clusters": _COUNT,
        "skipped": _COUNT,
        "unscored": _COUNT,
        "digits": _COUNT,
        "seeds": _COUNT,
        "seed_std": _NUMBER,
    },
}
_ROWS = {
    "type": "object",
    "required": [f.name for f in dataclasses.fields(RowValues)],
    "additionalProperties": False,
    "properties": {
        "ids": _TEXTS,
        "subjects": _TEXTS,
        "metrics": {"type": "object", "additionalProperties": {"type": "array", "items": _NUMBER}},
        "texts": {"type": "object", "additionalProperties": _TEXTS},
        "unscored": {"type": "object", "additionalProperties": _COUNT},
    },
}

EVAL_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Result of atwu evaluate",
    "type": "object",
    "required": ["schema", *(f.name for f in dataclasses.fields(EvalResult))],
    "additionalProperties": False,
    "properties": {
        "schema": {"const": SCHEMA_NAME},
        "model": {"type": "string"},
        "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "sets": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _METRIC}},
        "overall": {"type": "object", "additionalProperties": _METRIC},
        "rows": {"type": "object", "additionalProperties": _ROWS},
        "settings": {"type": "object"},
        "versions": {"type": "object", "additionalProperties": {"type": "string"}},
        "references": {"type": "object", "additionalProperties": {"type": "string"}},
        "cost": {"type": "object", "additionalProperties": _NUMBER},
        "curves": {"type": "object"},
        "warnings": _TEXTS,
    },
}
"""JSON Schema of `eval.json`."""
