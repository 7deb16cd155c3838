"""Rows on a page: words with scores, answers with their question, and escaped text."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable

import pytest

from atwu.data.schema import Example
from atwu.evaluation.result import EvalResult, row_id
from atwu.evaluation.weight_trace import Trace, TracedRow
from atwu.report.page.report_page import render_report_page
from atwu.report.page.row_sections import answers, traced
from atwu.report.report_records import Records
from tests.report.conftest import Page

pytestmark = pytest.mark.usefixtures("no_figures")

NASTY = '</script><img src=x onerror="alert(1)"> & "quoted" </style>\u2028'


def with_texts(records: Records) -> Records:
    """The same with answers, and with rows that a trace names."""

    def told(result: EvalResult) -> EvalResult:
        rows = dict(result.rows)
        names = [row_id(Example.from_qa(*pair)) for pair in (("Who is it?", "Orla Venn."), ("Where?", "In Kelbury."))]
        for split in ("forget", "retain"):
            old = rows[split]
            ids = (*names, *old.ids[2:]) if split == "forget" else old.ids
            said = tuple(f"{result.model} says {split} {place}" for place in range(len(old.ids)))
            rows[split] = dataclasses.replace(old, ids=ids, texts={"answer": said})
        return dataclasses.replace(result, rows=rows)

    row = TracedRow("forget", "Who is it?", "Orla Venn.", ((0, 9),), ((0, 4), (5, 10)), ((0.0, 0.5), (1.0, None)))
    trace = Trace("scorer", (0, 30), (row,), {"forget": (0.5, None)})
    traced = {"atwu": trace}
    runs = [dataclasses.replace(run, result=told(run.result), trace=traced.get(run.label)) for run in records.runs]
    references = {role: told(result) for role, result in records.references.items()}
    return dataclasses.replace(records, runs=tuple(runs), references=references)


def test_rows_of_the_user_are_escaped(build_records: Callable[..., Records]) -> None:
    made = with_texts(build_records(labels=["atwu", NASTY]))
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
    assert page.visible.count('<img src=x onerror="alert(1)">') >= 10
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


def test_answers_are_shown_with_their_question(records: Records) -> None:
    page = Page(render_report_page(with_texts(records)))
    names = [attrs["id"] for name, attrs in page.elements if name == "section" and "id" in attrs]
    assert names.index("answers") == names.index("cost") + 1
    said = page.html[page.html.index('<section id="answers"') :]
    assert '<h4 dir="auto">Who is it?</h4>' in said
    assert re.search(r'in the data</span></div>\s*<p class="answer" dir="auto">Orla Venn.</p>', said)
    for shown in ("original says forget 0", "atwu-s0 says retain 0", "leaked for some prompt"):
        assert shown in said
    assert "atwu-s1 says" not in said
    assert said.count("<article") == 16
    assert "Venn. (no score, labelled)" in page.visible
    assert "step 30<" in page.html


def test_answers_are_shown_for_rows_that_most_methods_have(records: Records) -> None:
    made = with_texts(records)
    split = made.runs[0].result.rows["forget"]
    rows = {"forget": dataclasses.replace(split, ids=split.ids[::-1])}
    first = dataclasses.replace(made.runs[0], result=dataclasses.replace(made.runs[0].result, rows=rows))
    (shown,) = answers(dataclasses.replace(made, references={}, runs=(first, *made.runs[2:])))[:1]
    assert shown["about"] == "Evaluated on other rows and not shown: atwu."
    assert [line["who"] for line in shown["rows"][0]["lines"]] == ["in the data", "wga", "npo"]
