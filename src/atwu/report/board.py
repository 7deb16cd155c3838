"""The board: results of several studies in one JSON file, `board.json`. A submission is such a file, too.

A study is a benchmark, a model and the methods compared on them: their mean results over seeds, without values of single
rows, and the record of one run each. The page has an overview of methods by study, then figures, table, commands and
records of each study.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, with_config

from atwu._file_reading import read_declared, read_yaml, type_adapter, validated
from atwu.evaluation.registry import short_name
from atwu.evaluation.result import STRICT, EvalResult
from atwu.report.metric_table import REFERENCE_MODELS, is_attack
from atwu.report.page_templates import render_template
from atwu.report.read_records import read_records
from atwu.report.report_page import (
    SORT,
    explained,
    facts,
    metrics_page_table,
    models_page_table,
    public_settings,
    range_of,
    reproduce,
)
from atwu.report.report_records import NO_BUDGET, STUDY_NAME, Records, RunRecord, headline_metrics, leading_metric
from atwu.report.trade_off import trade_off, trade_off_judged
from atwu.training.model_card import public_command, public_record, public_text

BOARD_NAME, FACTS_NAME = "board.json", "board.yaml"
BOARD_SCHEMA_NAME: Final = "atwu.board/1"
_MADE_BY = "atwu report STUDY --output FOLDER"

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


@with_config(STRICT)
@dataclass(frozen=True)
class BoardStudy:
    facts: StudyFacts
    results: Mapping[str, EvalResult]
    """`original`, `retain-only` or label -> mean over seeds."""
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Label -> `run.json` of its first seed, without private parts."""

    def __post_init__(self) -> None:
        if not self.results.keys() - set(REFERENCE_MODELS):
            raise ValueError("results need at least one unlearned model.")

    @cached_property
    def records(self) -> Records:
        """The study as the records of a report, with one run per label."""
        facts = self.facts
        about = {"command": facts.command, "budget": facts.budget, "about": facts.about}
        return Records(
            f"{facts.benchmark}, {facts.model}",
            {role: self.results[role] for role in REFERENCE_MODELS if role in self.results},
            tuple(
                RunRecord(label, None, None, result, self.runs.get(label))
                for label, result in self.results.items()
                if label not in REFERENCE_MODELS
            ),
            about,
        )


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Board:
    """The content of `board.json`."""

    studies: Annotated[tuple[BoardStudy, ...], Field(min_length=1)]
    schema: Literal["atwu.board/1"] = BOARD_SCHEMA_NAME

    def to_json(self) -> dict[str, Any]:
        return {"schema": self.schema, **json.loads(type_adapter(Board).dump_json(self))}


def read_board(paths: Sequence[str | Path]) -> Board:
    """Read finished studies and submissions.

    Args:
        paths: files of this schema, and folders that `atwu report` reads. A folder without `study.json` needs a
            `board.yaml` with the fields of `StudyFacts`; its fields replace those of a `study.json`.
    """
    studies: dict[StudyFacts, BoardStudy] = {}
    for path in map(Path, paths):
        for study in _studies(path):
            if study.facts in studies:
                what = f"{study.facts.benchmark!r} on {study.facts.model!r}"
                raise ValueError(f"{path}: the study {what} is given twice; leave one out.")
            studies[study.facts] = study
    return Board(tuple(studies.values()))


def _studies(path: Path) -> Iterable[BoardStudy]:
    if not path.exists():
        allowed = f"a study folder, a folder of results with a {FACTS_NAME}, or a {BOARD_NAME}"
        raise FileNotFoundError(f"{path} not found; give {allowed}.")
    # A folder that a board was written to is read through its `board.json`.
    has_records = (path / FACTS_NAME).is_file() or (path / STUDY_NAME).is_file()
    if (path / BOARD_NAME).is_file() and not has_records:
        path = path / BOARD_NAME
    if not path.is_dir():
        board: Board = read_declared(path, Board, BOARD_SCHEMA_NAME, what="board", made_by=_MADE_BY)
        return board.studies
    hint = f"{FACTS_NAME} in this folder states benchmark, model, command, budget, about and records."
    records = read_records([path])
    setting = records.study.get("setting") or {}
    target, benchmark = setting.get("target"), setting.get("benchmark")
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
    return [
        BoardStudy(
            validated(values, type_adapter(StudyFacts), what=str(file), hint=hint),
            {
                label: replace(result, model=public_text(result.model), settings=public_settings(result), rows={})
                for label, result in records.results.items()
            },
            # Reversed, so that the first seed of a label is the one that is kept.
            {run.label: public_record(run.run) for run in reversed(records.runs) if run.run is not None},
        )
    ]


def render_board(board: Board) -> str:
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
    columns: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    for study in board.studies:
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
    labels = Counter(label for study in board.studies for label in study.results)
    rows = [
        {"label": label, "cells": [column.get(label) for column in cells], "reference": label in REFERENCE_MODELS}
        for label, _ in labels.most_common()
    ]
    caption = f"The ranking metric of each study. {SORT}"
    return {"name": "headline-all", "caption": caption, "first": "Method", "columns": columns, "rows": rows}


def _section(study: BoardStudy, place: int) -> dict[str, Any]:
    records, every = study.records, study.records.table
    table = every.only(headline_metrics(records))
    attacks = metrics_page_table(every.only([key for key in every.keys if is_attack(key)]))
    if attacks is not None:
        attacks["name"] = f"attacks-{place}"
    # Without a highlighted method: a board has those of several studies.
    drawn = [draw(records, focus=None) for draw in (trade_off_judged, trade_off)]
    return {
        "facts": study.facts,
        "key_facts": facts(records),
        "headline": models_page_table(table, every, focus="") | {"name": f"headline-{place}"},
        "figures": [replace(figure, key=f"{figure.key}-{place}") for figure in drawn if figure.figure is not None],
        "attacks": attacks,
        "reproduce": reproduce(records, None),
    }
