"""Data for the tables of a report page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.registry import metric_definition, short_name
from atwu.report.metric_labels import metric_label
from atwu.report.model_standing import MEANING
from atwu.report.report_table import Head, Table
from atwu.report.table_values import REFERENCE_MODELS

_NOTES = {"original": "original model", "retain-only": "never trained on forget rows"}


def models_page_table(table: Table, every: Table, *, focus: str) -> dict[str, Any]:
    """Table with one row per model and one column per metric.

    Args:
        every: the same with further metrics, hidden at first.
    """
    keys = [*table.keys, *(key for key in every.keys if key not in table.keys)]
    every = every.only(keys)
    cells = every.cells(lambda cell: cell, None)
    ends = {key: _ends(rows) for key, rows in table.frame.groupby(["set", "metric"])}
    return {
        "name": "headline",
        "caption": "Reference models first, then methods. Click a column header to sort.",
        "first": "Model",
        "columns": [
            {
                "name": short_name(head.key[1], head.key[0]),
                "direction": head.direction,
                "above": head.key[0],
                "below": f"n = {head.count}",
                "meaning": _meaning(head),
                "more": head.key not in table.keys,
                "ends": ends.get(head.key),
            }
            for head in every.heads
        ],
        "rows": [
            _row(
                label,
                cells.loc[label],
                below=_NOTES.get(label) or every.out.get(label, ""),
                meaning=MEANING.get(every.out.get(label, ""), ""),
                focus=label == focus,
                reference=label in REFERENCE_MODELS,
            )
            for label in every.labels
        ],
        "used": _used(every.frame),
        "out": {word: MEANING[word] for word in MEANING if word in every.out.values()},
    }


def metrics_page_table(table: Table) -> dict[str, Any] | None:
    """Transposed table for many metrics: one row per metric, one column per model; None without metrics."""
    cells = table.cells(lambda cell: cell, None)
    plain = {"direction": "none", "above": "", "below": "", "meaning": "", "more": False, "ends": None}
    columns = [{"name": label} | plain for label in table.labels]
    rows = [
        _row(
            metric_label(head.key),
            cells[head.key],
            name=short_name(head.key[1], head.key[0]),
            direction=head.direction,
            below=", ".join(part for part in (head.key[0], f"n = {head.count}") if part != OVERALL),
            meaning=metric_definition(head.key[1], head.key[0]) or "",
        )
        for head in table.heads
    ]
    caption = "All probes and attacks. Click a column header to sort."
    return (
        {"name": "attack-table", "caption": caption, "first": "Metric", "columns": columns, "rows": rows}
        if rows
        else None
    )


def _row(label: str, cells: Sequence[Any], **about: Any) -> dict[str, Any]:
    plain = {"name": label, "direction": "none", "below": "", "meaning": "", "focus": False, "reference": False}
    return plain | {"label": label, "cells": list(cells)} | about


def _meaning(head: Head) -> str:
    meaning = metric_definition(head.key[1], head.key[0])
    return "" if meaning is None else f"{metric_label(head.key)}: {meaning}"


def _ends(rows: pd.DataFrame) -> tuple[float, float] | None:
    """Smallest and largest number of a column, including intervals."""
    numbers = rows[["value", "low", "high"]]
    low, high = numbers.min(axis=None), numbers.max(axis=None)
    return (low, high) if high > low else None


def _used(frame: pd.DataFrame) -> set[str]:
    """Marks and notes that the legend explains."""
    return set(frame["mark"]) | {name for name in ("interval", "spread") if (frame[name] != "").any()}
