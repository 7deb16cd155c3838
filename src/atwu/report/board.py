"""The board: several studies on one page.

A study is a benchmark, a model and the methods compared on them. The page has an overview of methods by study, then figures,
table, commands and records of each study.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, with_config

from atwu._file_reading import read_yaml, type_adapter, validated
from atwu.evaluation.registry import short_name
from atwu.evaluation.result import STRICT
from atwu.report.figures import trade_off, trade_off_judged
from atwu.report.metric_table import REFERENCE_MODELS
from atwu.report.page_templates import render_template
from atwu.report.read_records import read_records
from atwu.report.report_page import (
    SORT,
    explain_metrics,
    facts,
    models_page_table,
    range_of,
    reproduce,
)
from atwu.report.report_records import NO_BUDGET, Records, headline_metrics, leading_metric
from atwu.training.model_card import public_command, public_text

FACTS_NAME = "board.yaml"
Words = Annotated[str, Field(min_length=1, max_length=2000)]


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class StudyFacts:
    """What a study compares, and how to repeat it."""

    benchmark: Words
    model: Words
    command: Words
    """Command lines that give these results."""
    budget: Words = NO_BUDGET
    """How the methods were tuned."""
    about: str = ""
    records: Annotated[str, Field(pattern=r"^([^:]*|https://\S+)$")] = ""
    """Where the records of all runs are: an https address, or a folder of the repository."""


@dataclass(frozen=True, slots=True)
class BoardStudy:
    facts: StudyFacts
    records: Records
    """Its runs, with title, command and budget of the facts."""


def read_board(paths: Sequence[str | Path]) -> list[BoardStudy]:
    """Read finished studies.

    Args:
        paths: folders that `atwu report` reads. A folder without `study.json` needs a `board.yaml` with the fields of
            `StudyFacts`; its fields replace those of a `study.json`.
    """
    studies: dict[StudyFacts, BoardStudy] = {}
    for path in map(Path, paths):
        study = _read_study(path)
        if study.facts in studies:
            what = f"{study.facts.benchmark!r} on {study.facts.model!r}"
            raise ValueError(f"{path}: the study {what} is given twice; leave one out.")
        studies[study.facts] = study
    return list(studies.values())


def _read_study(path: Path) -> BoardStudy:
    hint = f"{FACTS_NAME} in this folder states benchmark, model, command, budget, about and records."
    records = read_records([path])
    if not records.runs:
        raise ValueError(f"{path} has reference models only; a study needs at least one unlearned model.")
    setting = records.study.get("setting") or {}
    target, benchmark = setting.get("target"), setting.get("benchmark")
    # A setting may describe its model (a shape to train) instead of naming one.
    if isinstance(target, Mapping):
        target = target.get("model") or target.get("shape")
    if not isinstance(benchmark, str):  # rows of the user's own, which have no name but the setting's
        benchmark = setting.get("name")
    stated = {
        "benchmark": benchmark,
        "model": target,
        "about": records.study.get("title"),
        "budget": records.study.get("budget"),
    }
    values = {key: public_text(str(value)) for key, value in stated.items() if value}
    command = records.study.get("command")
    if command:
        values["command"] = public_command(command)
    file = path / FACTS_NAME
    if file.is_file():
        written = read_yaml(file)
        if not isinstance(written, dict):
            raise ValueError(f"{file} must hold keys and their values. {hint}")
        values |= written
    facts: StudyFacts = validated(values, type_adapter(StudyFacts), what=str(file), hint=hint)
    about = {"command": facts.command, "budget": facts.budget, "about": facts.about}
    return BoardStudy(facts, replace(records, title=f"{facts.benchmark}, {facts.model}", study=about))


def render_board(studies: Sequence[BoardStudy]) -> str:
    keys = dict.fromkeys(key for study in studies for key in headline_metrics(study.records))
    sections = [_section(study, place) for place, study in enumerate(studies, 1)]
    legend = {
        "used": set().union(*(section["headline"]["used"] for section in sections)),
        "out": {word: meaning for section in sections for word, meaning in section["headline"]["out"].items()},
    }
    return render_template(
        "board.html",
        title="Unlearning board",
        overview=_overview(studies) | legend,
        studies=sections,
        glossary=explain_metrics(list(keys)),
    )


def _overview(studies: Sequence[BoardStudy]) -> dict[str, Any]:
    """Table with one row per method, the most studied first, and one column per study: the metric that ranks its methods."""
    columns: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    for study in studies:
        columns.append({"name": "–", "above": study.facts.benchmark, "below": study.facts.model})
        cells.append({})
        key = leading_metric(study.records)
        if key is None:
            continue
        table = study.records.table.only([key])
        split, metric = key
        columns[-1] |= {"name": short_name(metric, split), "direction": table.heads[0].direction}
        columns[-1]["ends"] = range_of(table.frame)
        cells[-1] = {cell.label: cell for cell in table.frame.itertuples()}
    labels = Counter(label for study in studies for label in study.records.results)
    rows = [
        {"label": label, "cells": [column.get(label) for column in cells], "reference": label in REFERENCE_MODELS}
        for label, _ in labels.most_common()
    ]
    caption = f"The ranking metric of each study. {SORT}"
    return {"name": "headline-all", "caption": caption, "first": "Method", "columns": columns, "rows": rows}


def _section(study: BoardStudy, place: int) -> dict[str, Any]:
    records, every = study.records, study.records.table
    table = every.only(headline_metrics(records))
    # Without a highlighted method: a board has those of several studies.
    drawn = [draw(records, focus=None) for draw in (trade_off_judged, trade_off)]
    return {
        "facts": study.facts,
        "key_facts": facts(records),
        "headline": models_page_table(table, every, focus="") | {"name": f"headline-{place}"},
        "figures": [replace(figure, key=f"{figure.key}-{place}") for figure in drawn if figure.figure is not None],
        "reproduce": reproduce(records, None),
    }
