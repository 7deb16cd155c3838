"""Sections of a page: words with scores, answers with their question, and the summary; escaped text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from atwu.data.schema import Example
from atwu.evaluation.aggregate import seed_differences
from atwu.evaluation.result import EvalResult, row_id
from atwu.evaluation.word_scores import Trace, TracedRow
from atwu.report.report_page import answers, facts, leading_metric, ranking, render_report_page, summary, traced_words
from atwu.report.report_records import Records, headline_metrics
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
    assert len([name for name, _ in page.elements if name == "script"]) == 1
    assert page.visible.count('<img src=x onerror="alert(1)">') >= 10


def test_words_follow_the_trace(page: Page, records: Records) -> None:
    trace = records.of("atwu")[0].trace
    assert trace is not None
    last = len(trace.steps) - 1
    looks = [trace.rows[0].scores[place] for place in (0, last // 2, last)]
    shown = [word["data-v"] for word in page.classed("w")]
    written = ["" if score is None else str(int(100 * score + 0.5)) for look in looks for score in look]
    assert shown[: len(written)] == written
    for place in (0, last // 2, last):
        assert f"step {trace.steps[place]} · AUROC {trace.auroc['forget'][place]:.2f}" in page.visible
    assert "Kelbury. (90, labelled)" in page.visible
    assert "npo, which gives every word the same weight" in page.visible
    assert (
        "recomputed on the current model during training (without the run's exponents), in the first run"
        in page.visible
    )
    assert "uses the mask" not in page.visible
    masked = tuple(
        dataclasses.replace(run, trace=dataclasses.replace(run.trace, weighting="logprob_mask"), seed=3)
        for run in records.runs
        if run.label == "wga" and run.seed == 0 and run.trace is not None
    )
    section = traced_words(dataclasses.replace(records, runs=(*records.of("atwu"), *masked)))["intro"]
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


def test_the_page_says_what_ranks_methods_and_how_they_were_tuned(records: Records, page: Page) -> None:
    assert leading_metric(records) == ("overall", "UQ")
    assert "Methods are ranked by UQ." in page.visible
    known = {"methods": "3", "seeds each": "2", "forget rows": "24", "retain rows": "24"}
    assert {name: dict(facts(records))[name] for name in known} == known
    assert "Tuning: 20 trials per method, learning rate and forget weight searched." in page.visible
    assert "General abilities lost: npo (marked in the table)." in page.visible
    assert "No finished run" not in page.visible
    fewer = dataclasses.replace(records, runs=(*records.of("atwu"), *records.of("npo")))
    assert "No finished run: wga." in summary(fewer)


def test_differences_of_methods_are_paired_over_common_seeds(records: Records) -> None:
    key, labels = ("overall", "UQ"), ("atwu", "wga")
    results = [[run.result for run in records.of(label)] for label in labels]
    difference = records.difference(*labels, key)
    assert difference is not None
    assert difference.value == seed_differences(*results, list(records.references.values()))[key].value
    assert difference.value == pytest.approx(
        sum(a.overall["UQ"].value - b.overall["UQ"].value for a, b in zip(*results, strict=True)) / 2
    )


def test_methods_are_ranked_by_printed_values(records: Records) -> None:
    best, run = records.results["atwu"].overall["UQ"], records.of("wga")[0]
    cell = dataclasses.replace(best, value=(best.value or 0.0) + 0.01, seeds=1, seed_std=None)
    run = dataclasses.replace(run, result=dataclasses.replace(run.result, overall={**run.result.overall, "UQ": cell}))
    near = dataclasses.replace(records, runs=(*records.of("atwu"), run, *records.of("npo")))
    places = ranking(near, ("overall", "UQ")).place
    assert places.to_dict() == {"atwu": 1, "wga": 1, "npo": 3}


def test_values_of_only_some_seeds_are_marked_and_not_ranked(records: Records) -> None:
    first = records.of("atwu")[0]
    without = {name: cell for name, cell in first.result.overall.items() if name != "UQ"}
    runs = (
        dataclasses.replace(first, result=dataclasses.replace(first.result, overall=without)),
        *(run for run in records.runs if run is not first),
    )
    found = dataclasses.replace(records, runs=runs)
    assert "atwu is not ranked: it has UQ for 1 of 2 seeds." in summary(found)
    assert list(ranking(found, ("overall", "UQ")).place.dropna().index) == ["wga", "npo"]
    page = Page(render_report_page(found))
    headline = page.html.partition('<table id="headline"')[2].partition("</table>")[0]
    rows = dict(re.findall(r'<tr data-label="([^"]*)"(.*?)</tr>', headline, re.DOTALL))
    assert '<span class="ci few">1 of 2 seeds</span>' in rows["atwu"]
    column = [name for _, name in headline_metrics(found)].index("UQ")
    marked = ["best" in re.findall("<td.*?</td>", rows[label], re.DOTALL)[column] for label in ("atwu", "wga")]
    assert marked == [False, True]


def test_left_out_runs_and_methods_are_named(records: Records) -> None:
    failed = {"wga-s0": "the loss is nan, see /srv/somebody/log"}
    study = {**records.study, "failed": failed, "left_out": {"dpo": "no rows"}}
    study["variants"] = [*study["variants"], {"label": "dpo"}]
    page = Page(render_report_page(dataclasses.replace(records, study=study)))
    assert "Left out: wga-s0 (the loss is nan, see log), dpo (no rows)." in page.visible
    assert "Left out: no rows. dpo" in page.visible
    assert "No finished run" not in page.visible
