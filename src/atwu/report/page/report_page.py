"""Render the report page: its sections, and the data of its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.registry import metric_definition, short_name, where_computed
from atwu.report.figures import all_figures
from atwu.report.metric_table import MEANING, REFERENCE_MODELS, MetricKey, Table, is_attack, metric_label
from atwu.report.page.page_templates import render_template
from atwu.report.page.row_sections import answers, traced
from atwu.report.page.summary_section import facts, reproduce, summary
from atwu.report.report_records import Records, RunRecord, headline_metrics, left_out, models_by_warning

_NOTES = {"original": "original model", "retain-only": "never trained on forget rows"}
SORT = "Click a column header to sort."


def render_report_page(records: Records, *, command: str | None = None, focus: str = "atwu") -> str:
    """Render a report as one self-contained HTML page, with its `command`; equal records give equal pages."""
    every = records.table
    table = every.only(headline_metrics(records))
    models = {name for name, _ in records.single_results}
    warnings = models_by_warning(records.single_results)
    return render_template(
        "page.html",
        title=records.title,
        summary=summary(records),
        facts=facts(records),
        headline=models_page_table(table, every, focus=focus),
        figures={drawn.key: drawn for drawn in all_figures(records, focus=focus)},
        traced=traced(records),
        attack_table=metrics_page_table(every.only([key for key in every.keys if is_attack(key)])),
        costs=cost_table(records),
        answers=answers(records),
        warnings={
            sentence: "all models" if set(names) == models else ", ".join(names) for sentence, names in warnings.items()
        },
        missing=left_out(records),
        reproduce=reproduce(records, command),
        glossary={"headline": explained(table.keys), "further": explained(every.keys, but=table.keys)},
    )


def explained(keys: Sequence[MetricKey], but: Sequence[MetricKey] = ()) -> list[dict[str, str | None]]:
    """Name, meaning and source of every metric in `keys` that is not in `but`."""
    told = {metric for _, metric in but}
    metrics = {
        metric: split for split, metric in reversed(keys) if metric not in told and metric_definition(metric, split)
    }
    return [
        {"name": short_name(*key), "meaning": metric_definition(*key), "where": where_computed(*key)}
        for key in reversed(metrics.items())
    ]


def models_page_table(table: Table, every: Table, *, focus: str) -> dict[str, Any]:
    """Table with one row per model and one column per metric, those of `every` that are not in `table` hidden at first."""
    keys = [*table.keys, *(key for key in every.keys if key not in table.keys)]
    every = every.only(keys)
    cells = every.cells(lambda cell: cell, None)
    ends = {key: range_of(rows) for key, rows in table.frame.groupby(["set", "metric"])}
    return {
        "name": "headline",
        "caption": f"Reference models first, then methods. {SORT}",
        "first": "Model",
        "columns": [
            {
                "name": short_name(head.key[1], head.key[0]),
                "direction": head.direction,
                "above": head.key[0],
                "below": f"n = {head.count}",
                "meaning": (meaning := metric_definition(head.key[1], head.key[0]))
                and f"{metric_label(head.key)}: {meaning}",
                "more": head.key not in table.keys,
                "ends": ends.get(head.key),
            }
            for head in every.heads
        ],
        "rows": [
            {
                "label": label,
                "cells": list(cells.loc[label]),
                "below": _NOTES.get(label) or every.out.get(label, ""),
                "meaning": MEANING.get(every.out.get(label, ""), ""),
                "focus": label == focus,
                "reference": label in REFERENCE_MODELS,
            }
            for label in every.labels
        ],
        # Marks and notes that the legend explains.
        "used": {*every.frame["mark"], *(name for name in ("interval", "spread") if (every.frame[name] != "").any())},
        "out": {word: MEANING[word] for word in MEANING if word in every.out.values()},
    }


def metrics_page_table(table: Table) -> dict[str, Any] | None:
    """Transposed table for many metrics: one row per metric, one column per model; None without metrics."""
    if not table.keys:
        return None
    cells = table.cells(lambda cell: cell, None)
    rows = [
        {
            "label": metric_label(head.key),
            "cells": list(cells[head.key]),
            "name": short_name(head.key[1], head.key[0]),
            "direction": head.direction,
            "below": ", ".join(part for part in (head.key[0], f"n = {head.count}") if part != OVERALL),
            "meaning": metric_definition(head.key[1], head.key[0]),
        }
        for head in table.heads
    ]
    columns = [{"name": label} for label in table.labels]
    caption = f"All probes and attacks. {SORT}"
    return {"name": "attack-table", "caption": caption, "first": "Metric", "columns": columns, "rows": rows}


def cost_table(records: Records) -> dict[str, Any] | None:
    """Training time, peak memory and calls to the judge of a run, means over seeds; None if nothing was recorded."""

    def seconds(run: RunRecord) -> float | None:
        """Without those of the trace, which only methods with token weights have."""
        whole = (run.run or {}).get("train_seconds")
        return None if whole is None else whole - (0.0 if run.trace is None else run.trace.seconds)

    spent = {
        "training time": [seconds(run) for run in records.runs],
        "peak memory": [(run.run or {}).get("peak_memory_bytes") for run in records.runs],
        "judge calls": [run.result.cost.get("judge_calls") for run in records.runs],
    }
    formats: dict[str, Callable[[float], str]] = {
        "training time": format_duration,
        "peak memory": lambda size: f"{size / 1e9:.3g} GB",
        "judge calls": "{:,.0f}".format,
    }
    means = pd.DataFrame(spent, dtype=float).groupby([run.label for run in records.runs], sort=False).mean()
    means = means.loc[:, (means > 0).any()]
    if means.empty:
        return None
    plain = {"mark": "", "interval": "", "spread": "", "told": ""}
    rows = [
        {
            "label": str(label),
            "cells": [
                None if pd.isna(mean) else plain | {"value": mean, "number": formats[str(title)](mean)}
                for title, mean in each.items()
            ],
        }
        for label, each in means.iterrows()
    ]
    caption = f"Means over seeds, per run; times depend on the machine, and cached verdicts count. {SORT}"
    columns = [{"name": str(title)} for title in means]
    return {"name": "cost-table", "caption": caption, "first": "Method", "columns": columns, "rows": rows}


def format_duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def range_of(rows: pd.DataFrame) -> tuple[float, float] | None:
    """Smallest and largest number of a column, including intervals."""
    numbers = rows[["value", "low", "high"]]
    low, high = numbers.min(axis=None), numbers.max(axis=None)
    return (low, high) if high > low else None
