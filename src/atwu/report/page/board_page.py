"""Render the board: an overview of methods by study, then figures, table, commands and records of each study."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from atwu.evaluation.registry import short_name
from atwu.report.board import Board, BoardStudy
from atwu.report.figures.trade_off import trade_off, trade_off_judged
from atwu.report.metric_labels import REFERENCE_MODELS, is_attack
from atwu.report.page.page_templates import render_template
from atwu.report.page.report_page import (
    SORT,
    explained,
    metrics_page_table,
    models_page_table,
    range_of,
    table_column,
    table_row,
)
from atwu.report.page.summary_section import facts, reproduce
from atwu.report.report_records import headline_metrics, leading_metric


def render_board(board: Board) -> str:
    """Render the page; equal boards give equal pages."""
    keys = dict.fromkeys(key for study in board.studies for key in headline_metrics(study.records))
    studies = [_section(study, place) for place, study in enumerate(board.studies, 1)]
    legend = {
        "used": set().union(*(study["headline"]["used"] for study in studies)),
        "out": {word: meaning for study in studies for word, meaning in study["headline"]["out"].items()},
    }
    return render_template(
        "board.html",
        title="Unlearning board",
        overview=_overview(board) | legend,
        studies=studies,
        glossary=explained(list(keys)),
    )


def _overview(board: Board) -> dict[str, Any]:
    """Table with one row per method, the most studied first, and one column per study: the metric that ranks its methods."""
    columns, cells = [], []
    for study in board.studies:
        key = leading_metric(study.records)
        table = study.records.table.only([key] if key else [])
        cells.append({cell.label: cell for cell in table.frame.itertuples()})
        about: dict[str, Any] = {"above": study.facts.benchmark, "below": study.facts.model}
        if key:
            about |= {"direction": table.heads[0].direction, "ends": range_of(table.frame)}
        columns.append(table_column(short_name(*reversed(key)) if key else "–", **about))
    labels = Counter(label for study in board.studies for label in study.results)
    rows = [
        table_row(label, [column.get(label) for column in cells], reference=label in REFERENCE_MODELS)
        for label, _ in labels.most_common()
    ]
    caption = f"The ranking metric of each study. {SORT}"
    return {"name": "headline-all", "caption": caption, "first": "Method", "columns": columns, "rows": rows}


def _section(study: BoardStudy, place: int) -> dict[str, Any]:
    """Return what the page shows of a study."""
    records, every = study.records, study.records.table
    table = every.only(headline_metrics(records))
    attacks = metrics_page_table(every.only([key for key in every.keys if is_attack(key)]))
    drawn = [draw(records, focus=None) for draw in (trade_off_judged, trade_off)]
    return {
        "facts": study.facts,
        "key_facts": facts(records),
        "headline": models_page_table(table, every, focus="") | {"name": f"headline-{place}"},
        "figures": [replace(figure, key=f"{figure.key}-{place}") for figure in drawn if figure.figure is not None],
        "attacks": attacks and attacks | {"name": f"attacks-{place}"},
        "reproduce": reproduce(records, None),
    }
