"""The report page: complete, self-contained, deterministic, without secrets, with the numbers of its records."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re

import pytest

from atwu.evaluation.registry import column_of
from atwu.evaluation.result import format_number
from atwu.report.metric_table import cell_of, format_duration, table_of
from atwu.report.report_page import render_report_page
from atwu.report.report_records import Records, headline_metrics
from tests.report.conftest import Page, contrast


def test_sections_in_order_with_links(page: Page) -> None:
    names = [attrs["id"] for name, attrs in page.elements if name == "section" and "id" in attrs]
    assert names == [
        "results", "trade-off", "words", "scores", "attacks", "cost", "warnings", "reproduce", "reading",
    ]  # fmt: skip
    ids = [str(attrs["id"]) for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = [
        attrs[key]
        for _, attrs in page.elements
        for key in ("for", "aria-labelledby", "aria-describedby")
        if key in attrs
    ]
    links = [str(attrs["href"]) for _, attrs in page.elements if "href" in attrs]
    assert {link.removeprefix("#") for link in links} | {str(name) for name in named} <= set(ids)
    assert all(link.startswith("#") for link in links)
    assert [name for name, _ in page.elements if name in ("main", "nav", "h1")] == ["nav", "main", "h1"]


def test_the_page_loads_nothing_and_its_policy_lists_its_scripts(page: Page) -> None:
    linked = [attrs.get("href") or attrs.get("xlink:href") or "#" for _, attrs in page.elements]
    assert all(str(link).startswith("#") for link in linked)
    assert not [attrs for _, attrs in page.elements if any(name == "src" or name.startswith("on") for name in attrs)]
    assert "url(" not in page.texts["style"]
    assert "@import" not in page.texts["style"]
    policy = next(str(attrs["content"]) for _, attrs in page.elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    digest = base64.b64encode(hashlib.sha256(page.texts["script"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_table_has_the_numbers_of_the_records(page: Page, records: Records) -> None:
    headline = headline_metrics(records)
    lines = [*headline, *(line for line in table_of(records.results).keys if line not in headline)]
    found = page.values("headline")
    assert list(found) == ["original", "retain-only", "atwu", "wga", "npo"]
    for label, values in found.items():
        cells = [cell_of(records.results[label], line) for line in lines]
        assert values == [repr(cell.value) if cell is not None else "" for cell in cells]
        for cell in cells:
            if cell is not None and cell.value is not None and cell.low is not None and cell.high is not None:
                low, high = (format_number(end, cell.digits) for end in (cell.low, cell.high))
                assert f"{format_number(cell.value, cell.digits)}</span>" in page.html
                assert f"[{low}, {high}]" in page.html
    assert '<span class="below">n = 12</span>' in page.html
    attack = lines.index(("forget", "leak_worst_family"))
    assert found["atwu"][attack] == repr(records.results["atwu"].sets["forget"]["leak_worst_family"].value)


def test_costs_are_means_over_seeds(page: Page) -> None:
    assert page.values("cost-table")["npo"][:2] == ["13.5", "550000000.0"]
    for shown in ("14.5 s", "0.55 GB", "121"):
        assert f'<span class="v ">{shown}</span>' in page.html
    assert [format_duration(seconds) for seconds in (9.94, 150, 9000)] == ["9.9 s", "2.5 min", "2.5 h"]


def test_marks_are_text_and_not_only_colours(page: Page) -> None:
    body = page.html[page.html.index('<table id="headline"') :]
    rows = {row[:20].split('"')[0]: row for row in body[: body.index("</table>")].split('<tr data-label="')[1:]}
    assert '<span class="sr">best </span>' in rows["atwu"]
    assert '<span class="sr">second </span>' in rows["wga"]
    assert '<span class="sr">degraded </span>' in rows["npo"]
    assert '<span class="sr">best' not in rows["original"] + rows["retain-only"]
    assert [attrs["class"] for attrs in page.classed("key")][:3] == ["key best", "key second", "key degraded"]


@pytest.mark.usefixtures("no_figures")
def test_pages_are_deterministic_and_small(records: Records, page: Page) -> None:
    assert len(page.html) < 1_000_000
    assert render_report_page(records, command="atwu report study --output report.html") == page.html


@pytest.mark.usefixtures("no_figures")
def test_a_page_of_minimal_records(records: Records) -> None:
    bare = [dataclasses.replace(run, run=None, trace=None) for run in records.runs[:1]]
    page = Page(render_report_page(Records("one run", {}, tuple(bare))))
    assert 'id="words"' not in page.html
    assert page.classed("missing")
    assert "Methods are ranked by UQ." in page.visible
    assert "Tuning: not stated." in page.visible
    assert not page.classed("references")
    only = Page(render_report_page(Records("references", records.references, ())))
    assert "original" in only.values("headline")


@pytest.mark.usefixtures("no_figures")
def test_commands_and_settings_hold_no_secrets(records: Records) -> None:
    command = "atwu report /srv/somebody/runs --judge-url 'https://orla:pw@host:8000/v1?key=abc'"
    bare = dataclasses.replace(
        records.runs[0],
        run=None,
        result=dataclasses.replace(records.runs[0].result, settings={"task_folder": "/srv/somebody/tasks", "seed": 1}),
    )
    study = {**records.study, "command": command}
    second = dataclasses.replace(records.of("wga")[0], run={"original_model": {"model": "/srv/somebody/target"}})
    made = dataclasses.replace(records, study=study, runs=(bare, second, *records.of("npo")))
    page = render_report_page(made, command=command)
    for secret in ("/srv", "somebody", "orla", "pw@", "key="):
        assert secret not in page
    assert page.count("atwu report runs --judge-url https://host:8000/v1") == 2
    assert "&#34;task_folder&#34;: &#34;tasks&#34;" in page
    assert "&#34;model&#34;: &#34;target&#34;" in page


@pytest.mark.usefixtures("no_figures")
def test_settings_of_several_models_are_listed_once(records: Records) -> None:
    other = {**records.runs[-1].result.settings, "seed": 7, "rows": {"forget": "abc"}}
    last = dataclasses.replace(
        records.runs[-1], result=dataclasses.replace(records.runs[-1].result, settings=other), seed=0
    )
    made = dataclasses.replace(records, runs=(*records.of("atwu"), last))
    page = render_report_page(made)
    assert page.count("&#34;kind&#34;: &#34;offline&#34;") == 2
    assert "&#34;seed&#34;: 7,\n" in page
    assert "original, retain-only, atwu" in page


def test_commands_settings_and_versions(page: Page) -> None:
    assert "atwu study run headline --setting people-tiny" in page.visible
    assert "atwu report study --output report.html" in page.visible
    assert "scorer × satga_plus, retain nll, learning rate 0.0003" in page.visible
    assert "run.json of seed 0, one of 2" in page.visible
    assert "atwu 0.1.0, torch 2.13.0" in page.visible


def test_every_metric_has_a_definition_and_a_formula(page: Page, records: Records) -> None:
    text = page.visible.replace("\u200b", "")
    for split, metric in table_of(records.results).keys:
        column = column_of(metric, split)
        assert column is not None, metric
        assert column.meaning.replace("J_", "J").replace("ES Δ", "ESΔ") in text
        assert f"Computed in {column.where}." in text
    assert "1 − J<sub>W</sub> / J<sub>W</sub> of the original model" in page.html


@pytest.mark.parametrize("dark", [False, True])
def test_colours_of_text_have_contrast(page: Page, dark: bool) -> None:
    pairs = dict(re.findall(r"--(\w+): light-dark\((#\w{6}), (?:#\w+)\)", page.texts["style"]))
    if dark:
        pairs = dict(re.findall(r"--(\w+): light-dark\(#\w+, (#\w{6})\)", page.texts["style"]))
    rgb = {name: (int(c[1:3], 16), int(c[3:5], 16), int(c[5:7], 16)) for name, c in pairs.items()}
    for ink in ("text", "soft", "accent"):
        for paper in ("page", "card", "tint"):
            assert contrast(rgb[ink], rgb[paper]) >= 4.5, (ink, paper)
    assert contrast(rgb["edge"], rgb["page"]) >= 3
    assert contrast(rgb["edge"], rgb["card"]) >= 3
