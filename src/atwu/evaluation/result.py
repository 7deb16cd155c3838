"""The result of an evaluation: a declared, versioned type, and its JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from atwu._files import write_json

SCHEMA_NAME = "atwu.eval/1"

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
    skipped: int = 0
    """Rows left out because the metric is undefined on them."""
    digits: int = 3
    """Decimals worth printing."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Everything one evaluation measured."""

    model: str
    fingerprint: str
    sets: Mapping[str, Mapping[str, MetricValue]]
    """Set name (forget, retain) -> metric name -> value."""
    rows: Mapping[str, int]
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    seconds: float
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that satisfies `EVAL_SCHEMA`; NaN becomes null."""
        plain = _without_nan(dataclasses.asdict(self))
        return {"schema": SCHEMA_NAME} | plain  # type: ignore[no-any-return]

    def write(self, path: str | Path) -> None:
        """Write the JSON so that a reader sees the old file or the whole new one."""
        write_json(path, self.to_json())


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_NUMBER = {"type": ["number", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_METRIC = {
    "type": "object",
    "required": ["value", "n", "direction", "std", "skipped", "digits"],
    "additionalProperties": False,
    "properties": {
        "value": _NUMBER,
        "n": _COUNT,
        "direction": {"enum": ["up", "down", "none"]},
        "std": _NUMBER,
        "skipped": _COUNT,
        "digits": _COUNT,
    },
}

EVAL_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Result of atwu evaluate",
    "type": "object",
    "required": ["schema", "model", "fingerprint", "sets", "rows", "settings", "versions", "seconds", "warnings"],
    "additionalProperties": False,
    "properties": {
        "schema": {"const": SCHEMA_NAME},
        "model": {"type": "string"},
        "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "sets": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _METRIC}},
        "rows": {"type": "object", "additionalProperties": _COUNT},
        "settings": {"type": "object"},
        "versions": {"type": "object", "additionalProperties": {"type": "string"}},
        "seconds": {"type": "number", "minimum": 0},
        "warnings": {"type": "array", "items": {"type": "string"}},
    },
}
"""JSON Schema of `eval.json`."""
