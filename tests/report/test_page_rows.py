"""Rows on a page: words with scores, and escaped text."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from atwu.report.page.report_page import render_report_page
from atwu.report.page.row_sections import traced
from atwu.report.report_records import Records
from tests.report.conftest import Page

pytestmark = pytest.mark.usefixtures("no_figures")

NASTY = '</script><img src=x onerror="alert(1)"> & "quoted" </style>\u2028'


def test_rows_of_the_user_are_escaped(build_records: Callable[..., Records]) -> None:
    made = build_records(labels=["atwu", NASTY])
    trace = made.runs[0].trace
    assert trace is not None
    row = dataclasses.replace(trace.rows[0], question=NASTY, answer=f"Orla Venn {NASTY}")
    runs = [
        dataclasses.replace(
            run,
            trace=dataclasses.replace(trace, rows=(row,)),
            run={**(run.run or {}), "method": NASTY},
            result=dataclasses.replace(run.result, warnings=(NASTY,), versions={"atwu": NASTY}),
        )
        for run in made.runs
    ]
    study = {**made.study, "title": NASTY, "command": NASTY, "budget": NASTY, "about": NASTY}
    page = Page(
        render_report_page(dataclasses.replace(made, title=NASTY, runs=tuple(runs), study=study), command=NASTY)
    )
    assert not [name for name, _ in page.elements if name == "img"]
    assert len([name for name, _ in page.elements if name == "script"]) == 2
    assert page.visible.count('<img src=x onerror="alert(1)">') >= 8
    assert json.loads(page.texts["traces"])["methods"][1]["label"] == NASTY


def test_words_follow_the_trace(page: Page, records: Records) -> None:
    block = json.loads(page.texts["traces"])
    trace = records.of("atwu")[0].trace
    assert trace is not None
    assert block["snapshots"] == len(trace.steps)
    assert block["methods"][0] == {
        "label": "atwu", "steps": list(trace.steps), "auroc": {name: list(values) for name, values in trace.auroc.items()},
    }  # fmt: skip
    for number, row in enumerate(trace.rows):
        for look, scores in zip(block["rows"][number][0], row.scores, strict=True):
            assert look == [None if score is None else int(100 * score + 0.5) for score in scores]
    shown = [word["data-v"] for word in page.classed("w")]
    assert shown[: len(trace.rows[0].words)] == [str(value) for value in block["rows"][0][0][-1]]
    assert "Kelbury. (90, labelled)" in page.visible
    assert "npo, which gives every word the same weight" in page.visible
    assert "recomputed on the current model during training (without the run's exponents), in the run with seed 0." in (
        page.visible
    )
    assert "uses the mask" not in page.visible
    masked = tuple(
        dataclasses.replace(run, trace=dataclasses.replace(run.trace, weighting="logprob_mask"), seed=3)
        for run in records.runs
        if run.label == "wga" and run.seed == 0 and run.trace is not None
    )
    section = traced(dataclasses.replace(records, runs=(*records.of("atwu"), *masked)))["intro"]
    assert "in the first run with a trace (seed of atwu: 0, wga: 3)" in section
    assert "wga: training uses the mask of the original model" in section
