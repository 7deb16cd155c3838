"""Export a report as Markdown, LaTeX, CSV or JSON. Printed numbers are those of the JSON, rounded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from atwu.evaluation.result import EVAL_SCHEMA, EvalResult
from atwu.report.latex import to_latex
from atwu.report.markdown import to_markdown
from atwu.report.report_table import DATA, headline_metrics
from atwu.report.run_records import Records
from atwu.training.model_card import public_command, public_record

REPORT_SCHEMA_NAME = "atwu.report/1"


def to_csv(records: Records) -> str:
    """Return all numbers of all models in long form, unrounded: one row per model, set and metric."""
    frame = records.table.frame
    frame = frame.assign(label=frame.label.map(_cell))
    text: str = frame.to_csv(columns=DATA, index=False, lineterminator="\n")
    return text


def _cell(text: str) -> str:
    """Escape text that a spreadsheet would read as a formula."""
    return f"'{text}" if text[:1] in set("=+-@\t\r") else text


def to_json(records: Records) -> str:
    """Return the report as JSON that satisfies `REPORT_SCHEMA`: results averaged over seeds, and the single runs.

    Values per row and curves are only in the runs' own `eval.json`; local paths and secrets in URLs are removed.
    """
    plain: dict[str, Any] = {
        "schema": REPORT_SCHEMA_NAME,
        "title": records.title,
        "study": _study(records),
        "headline": [list(key) for key in headline_metrics(records)],
        "results": {label: _without_rows(result) for label, result in records.results.items()},
        "runs": [
            {
                "label": run.label,
                "seed": run.seed,
                "result": _without_rows(run.result),
                "run": None if run.run is None else public_record(run.run),
            }
            for run in records.runs
        ],
    }
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_rows(result: EvalResult) -> dict[str, Any]:
    plain: dict[str, Any] = public_record(dataclasses.replace(result, rows={}, curves={}).to_json())
    return plain


def _study(records: Records) -> dict[str, Any]:
    """Return `study.json` without local paths; earlier versions stored the command unchanged."""
    plain: dict[str, Any] = public_record(records.study)
    command = records.study.get("command")
    return plain if command is None else plain | {"command": public_command(str(command))}


REPORT_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Report of atwu report --format json",
    "type": "object",
    "required": ["schema", "title", "study", "headline", "results", "runs"],
    "additionalProperties": False,
    "properties": {
        "schema": {"const": REPORT_SCHEMA_NAME},
        "title": {"type": "string"},
        "study": {"type": "object"},
        "headline": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
        },
        "results": {"type": "object", "additionalProperties": {"$ref": "#/$defs/result"}},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["label", "seed", "result", "run"],
                "additionalProperties": False,
                "properties": {
                    "label": {"type": "string"},
                    "seed": {"type": ["integer", "null"]},
                    "result": {"$ref": "#/$defs/result"},
                    "run": {"type": ["object", "null"]},
                },
            },
        },
    },
    "$defs": {
        "result": {key: value for key, value in EVAL_SCHEMA.items() if key not in ("$schema", "$defs")},
        **EVAL_SCHEMA["$defs"],
    },
}
"""JSON Schema of `to_json`."""

WRITERS: Mapping[str, Callable[[Records], str]] = {
    "md": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}
"""Format -> text of a report."""
