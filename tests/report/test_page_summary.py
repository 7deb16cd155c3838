"""The summary of a page: the best method, its significance, and what is left out."""

from __future__ import annotations

import dataclasses
import re

import pytest

from atwu.evaluation.aggregate import seed_differences
from atwu.evaluation.result import format_number
from atwu.report.page.report_page import render_report_page
from atwu.report.page.summary_section import leading_metric, ranking, summary
from atwu.report.report_records import Records, headline_metrics
from tests.report.conftest import Page

pytestmark = pytest.mark.usefixtures("no_figures")


def test_the_summary_names_the_best_method_and_its_significance(records: Records, page: Page) -> None:
    line = leading_metric(records)
    assert line == ("overall", "UQ")
    first, second = ranking(records, line).index[:2]
    results = [[run.result for run in records.of(label)] for label in (first, second)]
    expected = seed_differences(results[0], results[1], list(records.references.values()))[line]
    found = records.difference(first, second, line)
    assert found is not None
    assert found.value == expected.value
    assert found.value == pytest.approx(
        sum(a.overall["UQ"].value - b.overall["UQ"].value for a, b in zip(*results, strict=True)) / 2
    )
    low, high = expected.interval() or (0.0, 0.0)
    says = "excludes zero" if low > 0 or high < 0 else "does not exclude zero"
    assert f"the paired difference of {format_number(found.value, 1)} [{low:.1f}, {high:.1f}] {says}" in page.visible
    assert f"{first} has the best UQ" in page.visible
    assert "Evaluated on 24 forget and 24 retain rows with 2 seeds per method." in page.visible
    assert "Tuning: 20 trials per method, learning rate and forget weight searched." in page.visible
    assert "npo lost general abilities" in page.visible


def test_the_summary_of_a_tie_and_of_a_lower_ranked_method(records: Records) -> None:
    runs = [dataclasses.replace(run, result=records.of("atwu")[run.seed or 0].result) for run in records.runs]
    tied = summary(dataclasses.replace(records, runs=tuple(runs)), focus="atwu")
    assert "<strong>atwu</strong>, <strong>wga</strong> and <strong>npo</strong> share the best UQ: " in tied
    assert "is number" not in tied
    assert "npo</strong> is number 3 of 3 with" in summary(records, focus="npo")
    assert "npo</strong> is number" not in summary(records, focus="atwu")
    assert "No finished run" not in summary(records, focus="atwu")
    assert "No finished run of wga." in summary(
        dataclasses.replace(records, runs=(*records.of("atwu"), *records.of("npo"))), focus="atwu"
    )


def test_the_summary_ranks_by_printed_values(records: Records) -> None:
    best, run = records.results["atwu"].overall["UQ"], records.of("wga")[0]
    cell = dataclasses.replace(best, value=(best.value or 0.0) + 0.01, seeds=1, seed_std=None)
    run = dataclasses.replace(run, result=dataclasses.replace(run.result, overall={**run.result.overall, "UQ": cell}))
    near = dataclasses.replace(records, runs=(*records.of("atwu"), run, *records.of("npo")))
    assert list(ranking(near, ("overall", "UQ")).index[:2]) == ["atwu", "wga"]
    assert "share the best UQ" in summary(near, focus="atwu")
    assert "is number 2" not in summary(near, focus="atwu")
    assert "npo</strong> is number 3 of 3 with" in summary(near, focus="npo")


def test_a_difference_over_fewer_seeds_is_marked(records: Records) -> None:
    fewer = dataclasses.replace(records, runs=tuple(run for run in records.runs if (run.label, run.seed) != ("wga", 0)))
    assert "the paired difference over the seeds that both have (1) of" in summary(fewer, focus="atwu")
    none = dataclasses.replace(records, runs=(*records.of("atwu")[:1], *records.of("wga")[1:]))
    assert "paired difference" not in summary(none, focus="atwu")


def test_values_of_only_some_seeds_are_marked_and_not_ranked(records: Records) -> None:
    first = records.of("atwu")[0]
    without = {name: cell for name, cell in first.result.overall.items() if name != "UQ"}
    runs = (
        dataclasses.replace(first, result=dataclasses.replace(first.result, overall=without)),
        *(run for run in records.runs if run is not first),
    )
    found = dataclasses.replace(records, runs=runs)
    assert "atwu is not ranked: it has UQ for 1 of 2 seeds." in summary(found, focus="atwu")
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
    sentences = {**records.study, "left_out": ["dpo is left out: it needs questions"]}
    assert "Left out: dpo (it needs questions)." in summary(dataclasses.replace(records, study=sentences), focus="atwu")
