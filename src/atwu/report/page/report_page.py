"""Render the report page from its sections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from atwu._files import write_text
from atwu.evaluation.registry import metric_definition, short_name, where_computed
from atwu.evaluation.result import EvalResult
from atwu.report.figures import all_figures
from atwu.report.metric_labels import is_attack
from atwu.report.page.answers_section import answers
from atwu.report.page.page_tables import metrics_page_table, models_page_table
from atwu.report.page.page_templates import render_template
from atwu.report.page.reproduce_section import reproduce
from atwu.report.page.summary_section import facts, summary
from atwu.report.page.words_section import traced
from atwu.report.report_table import headline_metrics, left_out
from atwu.report.run_records import Records
from atwu.report.table_values import MetricKey


def write_report_page(records: Records, path: str | Path, *, command: str | None = None, focus: str = "atwu") -> None:
    """Write a report as one self-contained HTML file, atomically.

    Args:
        command: command that creates this page, shown on it.
    """
    write_text(path, render_report_page(records, command=command, focus=focus))


def render_report_page(records: Records, *, command: str | None = None, focus: str = "atwu") -> str:
    """Render the page; equal records give equal pages."""
    every = records.table
    table = every.only(headline_metrics(records))
    return render_template(
        "page.html",
        title=records.title,
        summary=summary(records, focus=focus),
        facts=facts(records),
        headline=models_page_table(table, every, focus=focus),
        figures={drawn.key: drawn for drawn in all_figures(records, focus=focus)},
        traced=traced(records),
        attack_table=metrics_page_table(every.only([key for key in every.keys if is_attack(key)])),
        answers=answers(records),
        warnings=_warnings(records),
        missing=left_out(records),
        reproduce=reproduce(records, command),
        glossary={"headline": _explained(table.keys), "further": _explained(every.keys, but=table.keys)},
    )


def _explained(keys: Sequence[MetricKey], but: Sequence[MetricKey] = ()) -> list[dict[str, str | None]]:
    """Name, meaning and formula of every metric in `lines` that is not in `but`."""
    told = {metric for _, metric in but}
    metrics = {
        metric: split for split, metric in reversed(keys) if metric not in told and metric_definition(metric, split)
    }
    return [
        {"name": short_name(*key), "meaning": metric_definition(*key), "where": where_computed(*key)}
        for key in reversed(metrics.items())
    ]


def _warnings(records: Records) -> dict[str, str]:
    """Each warning once, with the models it applies to."""
    said: dict[str, dict[str, None]] = {}
    every: list[tuple[str, EvalResult]] = list(records.references.items())
    every += [(run.label, run.result) for run in records.runs]
    for name, result in every:
        for sentence in result.warnings:
            said.setdefault(sentence, {})[name] = None
    whole = {name for name, _ in every}
    return {sentence: "all models" if names.keys() == whole else ", ".join(names) for sentence, names in said.items()}
