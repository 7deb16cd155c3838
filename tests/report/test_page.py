"""The page of a report: whole, safe, self-contained, the same every time, with the numbers of its records."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from atwu.data.schema import Example
from atwu.evaluation.panel.seeds import seed_differences
from atwu.evaluation.result import EvalResult, MetricValue, row_id
from atwu.evaluation.trace import Trace, TracedRow
from atwu.report.colour_scale import contrast
from atwu.report.method_table import headline_lines
from atwu.report.page import render_page, write_page
from atwu.report.page.answers import answers_section
from atwu.report.page.glossary import definition, short_name
from atwu.report.page.html import Html, data_block, join, tag
from atwu.report.page.reproduce import shared_settings
from atwu.report.page.results import metric_table, subscripted
from atwu.report.page.summary import difference, leading_line, order, summary
from atwu.report.page.words import look_at, words_section
from atwu.report.panel import cell_of, lines_of
from atwu.report.records import Records
from atwu.report.tables import known, shown_number

VOID = {"meta", "input", "br", "link", "img", "hr"}
NASTY = '</script><img src=x onerror="alert(1)"> & "quoted" </style>\u2028'


class Page(HTMLParser):
    """Checks nesting and collects elements and text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.visible = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"attribute twice in <{tag}>"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside in ("style", "script"):
            name = self.elements[-1][1].get("id") or inside
            self.texts[name] = self.texts.get(name, "") + data
        else:
            self.visible += data

    def classed(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.elements if name in (attrs.get("class") or "").split()]

    def values(self, table: str) -> dict[str, list[str]]:
        """Label -> full values of its cells."""
        body = re.search(rf'<table id="{table}".*?</table>', self.html, re.S)
        assert body is not None
        rows = re.findall(r'<tr data-label="([^"]*)".*?</tr>', body[0], re.S)
        cells = [re.findall(r'data-v="([^"]*)"', row) for row in re.findall(r"<tr data-label.*?</tr>", body[0], re.S)]
        return dict(zip(rows, cells, strict=True))


@pytest.fixture(scope="module")
def page(records: Records) -> Page:
    return Page(render_page(records, command="atwu report study --output report.html"))


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
    runs = [
        dataclasses.replace(run, result=told(run.result), trace=trace if run.label == "atwu" else None)
        for run in records.runs
    ]
    references = {role: told(result) for role, result in records.references.items()}
    return dataclasses.replace(records, runs=tuple(runs), references=references)


def test_text_is_escaped_and_markup_is_not() -> None:
    made = tag("p", {"title": '"<', "hidden": True, "id": None, "data-n": 0}, "<b>", Html("<i>x</i>"), None, 3)
    assert made == '<p title="&quot;&lt;" hidden data-n="0">&lt;b&gt;<i>x</i>3</p>'
    assert join(["<", Html("<br>")], " & ") == "&lt; &amp; <br>"
    assert "<" not in data_block("a", {"x": NASTY})[len('<script type="application/json" id="a">') : -len("</script>")]


def test_sections_in_order_with_links(page: Page) -> None:
    names = [attrs["id"] for name, attrs in page.elements if name == "section" and "id" in attrs]
    assert names == [
        "results", "trade-off", "words", "scores", "training", "attacks", "cost", "warnings", "reproduce", "reading",
    ]  # fmt: skip
    ids = [str(attrs["id"]) for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = [
        attrs[key]
        for _, attrs in page.elements
        for key in ("for", "aria-labelledby", "aria-describedby")
        if key in attrs
    ]
    links = [str(attrs["href"]) for name, attrs in page.elements if name in ("a", "use")]
    assert {link.removeprefix("#") for link in links} | {str(name) for name in named} <= set(ids)
    assert all(link.startswith("#") for link in links)
    assert [name for name, _ in page.elements if name in ("main", "nav", "h1")] == ["nav", "main", "h1"]


def test_nothing_is_fetched_and_the_policy_names_what_runs(page: Page) -> None:
    assert not [attrs for _, attrs in page.elements if "src" in attrs or "xlink:href" in attrs]
    assert not [attrs for _, attrs in page.elements if "style" in attrs or any(name.startswith("on") for name in attrs)]
    assert "url(" not in page.texts["style"]
    assert "@import" not in page.texts["style"]
    policy = next(str(attrs["content"]) for _, attrs in page.elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.texts[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_table_has_the_numbers_of_the_records(page: Page, records: Records) -> None:
    headline = headline_lines(records)
    lines = [*headline, *(line for line in lines_of(records.results) if line not in headline)]
    found = page.values("headline")
    assert list(found) == ["original", "retain-only", "atwu", "wga", "npo"]
    for label, values in found.items():
        cells = [cell_of(records.results[label], line) for line in lines]
        assert values == [repr(cell.value) if cell is not None and known(cell) else "" for cell in cells]
        for cell in cells:
            if cell is not None and cell.value is not None and cell.low is not None and cell.high is not None:
                low, high = (shown_number(end, cell.digits) for end in (cell.low, cell.high))
                assert f"{shown_number(cell.value, cell.digits)}</span>" in page.html
                assert f"[{low}, {high}]" in page.html
    assert '<span class="below">forget, n = 12</span>' in page.html
    attacks = page.values("attack-table")
    assert attacks["forget leak, worst family"][2] == repr(
        records.results["atwu"].sets["forget"]["leak_worst_family"].value
    )


def test_marks_are_said_and_not_only_coloured(page: Page) -> None:
    body = page.html[page.html.index('<table id="headline"') :]
    rows = {row[:20].split('"')[0]: row for row in body[: body.index("</table>")].split('<tr data-label="')[1:]}
    assert '<span class="sr">best </span>' in rows["atwu"]
    assert '<span class="sr">second </span>' in rows["wga"]
    assert '<span class="sr">degraded </span>' in rows["npo"]
    assert '<span class="sr">best' not in rows["original"] + rows["retain-only"]
    assert [attrs["class"] for attrs in page.classed("key")][:3] == ["key best", "key second", "key degraded"]


def test_users_rows_stay_text(build_records: Callable[..., Records]) -> None:
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
    page = Page(render_page(dataclasses.replace(made, title=NASTY, runs=tuple(runs), study=study), command=NASTY))
    assert not [name for name, _ in page.elements if name == "img"]
    assert len([name for name, _ in page.elements if name == "script"]) == 2
    assert page.visible.count('<img src=x onerror="alert(1)">') >= 10
    assert json.loads(page.texts["traces"])["methods"][1]["label"] == NASTY


def test_pages_are_the_same_every_time(records: Records, tmp_path: Path) -> None:
    for name in ("a.html", "deep/b.html"):
        write_page(records, tmp_path / name, command="atwu report x")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "deep/b.html").read_bytes()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.html", "b.html", "deep"]


def test_twenty_runs_stay_small(build_records: Callable[..., Records], tmp_path: Path) -> None:
    labels = ["atwu", "wga", "npo", "satimp", "simnpo", "dpo", "undial", "rmu", "jensun", "grad_diff"]
    write_page(build_records(labels=labels, seeds=[0, 1]), tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size < 5_000_000


def test_summary_says_who_leads_and_whether_that_is_sure(records: Records, page: Page) -> None:
    line = leading_line(records)
    assert line == ("overall", "UQ")
    first, second = order(records, line)[:2]
    results = [[run.result for run in records.of(label)] for label in (first, second)]
    expected = seed_differences(results[0], results[1], list(records.references.values()))[line]
    found = difference(records, first, second, line)
    assert found is not None
    assert found.value == expected.value
    assert found.value == pytest.approx(
        sum(a.overall["UQ"].value - b.overall["UQ"].value for a, b in zip(*results, strict=True)) / 2
    )  # type: ignore[operator]
    low, high = expected.interval() or (0.0, 0.0)
    says = "excludes zero" if low > 0 or high < 0 else "does not exclude zero"
    assert f"the paired difference of {shown_number(found.value, 1)} [{low:.1f}, {high:.1f}] {says}" in page.visible
    assert f"{first} has the best UQ" in page.visible
    assert "Measured on 24 forget and 24 retain rows with 2 seeds per method." in page.visible
    assert "Tuning: 20 trials per method, learning rate and forget weight searched." in page.visible
    assert "npo lost general abilities" in page.visible


def test_summary_of_a_tie_and_of_a_method_further_down(records: Records) -> None:
    runs = [dataclasses.replace(run, result=records.of("atwu")[run.seed or 0].result) for run in records.runs]
    tied = summary(dataclasses.replace(records, runs=tuple(runs)), focus="atwu")
    assert "<strong>atwu</strong>, <strong>wga</strong> and <strong>npo</strong> share the best UQ: " in Html(
        tied
    ).replace("</strong></span>", "</strong>")
    assert "second" not in tied
    assert "npo</strong> is number 3 of 3 with" in summary(records, focus="npo")
    assert "is number" not in summary(records, focus="atwu")
    assert "No finished run" not in summary(records, focus="atwu")
    assert "No finished run of wga." in summary(
        dataclasses.replace(records, runs=(*records.of("atwu"), *records.of("npo"))), focus="atwu"
    )


def test_summary_ranks_by_what_is_printed(records: Records) -> None:
    best = records.results["atwu"].overall["UQ"].value
    assert best is not None
    near = changed(records, "wga", lambda cell: dataclasses.replace(cell, value=best + 0.01))
    assert order(near, ("overall", "UQ"))[:2] == ["atwu", "wga"]
    assert "share the best UQ" in summary(near, focus="atwu")
    assert "comes second with" not in summary(near, focus="atwu")
    assert "npo</strong> is number 3 of 3 with" in summary(near, focus="npo")


def test_a_difference_over_fewer_seeds_says_so(records: Records) -> None:
    fewer = dataclasses.replace(records, runs=tuple(run for run in records.runs if (run.label, run.seed) != ("wga", 0)))
    first, second = order(fewer, ("overall", "UQ"))[:2]
    singles = [fewer.of(label)[-1].result.overall["UQ"] for label in (first, second)]
    both = " against ".join(shown_number(cell.value, cell.digits) for cell in singles)
    assert f"the paired difference over seed 1, which both have ({both}), of" in summary(fewer, focus="atwu")
    none = dataclasses.replace(records, runs=(*records.of("atwu")[:1], *records.of("wga")[1:]))
    assert "paired difference" not in summary(none, focus="atwu")


def test_a_number_of_some_seeds_is_said_and_not_ranked(records: Records) -> None:
    first = records.of("atwu")[0]
    without = {name: cell for name, cell in first.result.overall.items() if name != "UQ"}
    runs = (
        dataclasses.replace(first, result=dataclasses.replace(first.result, overall=without)),
        *(run for run in records.runs if run is not first),
    )
    found = dataclasses.replace(records, runs=runs)
    assert "atwu is not ranked: it has UQ for 1 of 2 seeds." in summary(found, focus="atwu")
    assert order(found, ("overall", "UQ")) == ["wga", "npo"]
    table = metric_table(found, [("overall", "UQ")], name="t", caption="")
    rows = dict(zip(("atwu", "wga"), table.split('<tr data-label="')[3:], strict=False))
    assert '<span class="ci few">1 of 2 seeds</span>' in rows["atwu"]
    assert "best" not in rows["atwu"]
    assert "best" in rows["wga"]


def test_what_is_left_out_is_named(records: Records) -> None:
    study = {
        **records.study,
        "failed": {"wga-s0": "the loss is nan, see /srv/somebody/log"},
        "left_out": {"dpo": "no rows"},
    }
    study["variants"] = [*study["variants"], {"label": "dpo"}]
    page = Page(render_page(dataclasses.replace(records, study=study)))
    assert "Left out: wga-s0 (the loss is nan, see log), dpo (no rows)." in page.visible
    assert "Left out: no rows. dpo" in page.visible
    assert "No finished run" not in page.visible
    sentences = {**records.study, "left_out": ["dpo is left out: it needs questions"]}
    assert "Left out: dpo (it needs questions)." in summary(dataclasses.replace(records, study=sentences), focus="atwu")


def test_answers_are_those_of_the_rows_most_methods_saw(records: Records) -> None:
    made = with_texts(records)

    def other_rows(result: EvalResult) -> EvalResult:
        rows = {split: dataclasses.replace(found, ids=found.ids[::-1]) for split, found in result.rows.items()}
        return dataclasses.replace(result, rows=rows)

    references = {role: other_rows(result) for role, result in made.references.items()}
    runs = tuple(
        dataclasses.replace(run, result=other_rows(run.result)) if run.label == "atwu" else run for run in made.runs
    )
    shown = str(answers_section(dataclasses.replace(made, references=references, runs=runs)))
    assert "Measured on other rows and not shown: original, retain-only, atwu." in shown
    assert "wga-s0 says forget 0" in shown
    assert "atwu-s0 says" not in shown


def test_words_follow_the_trace(page: Page, records: Records) -> None:
    block = json.loads(page.texts["traces"])
    trace = records.of("atwu")[0].trace
    assert trace is not None
    assert block["looks"] == len(trace.steps)
    assert block["methods"][0] == {
        "label": "atwu", "steps": list(trace.steps), "auroc": {name: list(values) for name, values in trace.auroc.items()},
    }  # fmt: skip
    for number, row in enumerate(trace.rows):
        for look, scores in zip(block["rows"][number][0], row.scores, strict=True):
            assert look == [None if score is None else int(100 * score + 0.5) for score in scores]
    shown = [word["data-v"] for word in page.classed("w")]
    assert shown[: len(trace.rows[0].words)] == [str(value) for value in block["rows"][0][0][-1]]
    assert "Kelbury. (90, secret)" in page.visible
    assert "npo, which gives every word the same weight" in page.visible
    assert (
        "recomputed on the current model while it trains (without the run's own exponents), in the run of seed 0."
        in (page.visible)
    )
    assert "keeps the mask" not in page.visible
    masked = tuple(
        dataclasses.replace(run, trace=dataclasses.replace(run.trace, weighting="logprob_mask"), seed=3)
        for run in records.runs
        if run.label == "wga" and run.seed == 0 and run.trace is not None
    )
    section = str(words_section(dataclasses.replace(records, runs=(*records.of("atwu"), *masked))))
    assert "in the first run that was looked at (seed of atwu: 0, wga: 3)" in section
    assert "wga: training keeps the mask of the starting model" in section


def test_the_look_nearest_to_a_share_of_the_training() -> None:
    steps = (0, 5, 9, 20)
    assert [look_at(steps, share) for share in (0.0, 0.1, 0.25, 0.36, 0.7, 0.73, 1.0)] == [0, 0, 1, 2, 2, 3, 3]
    assert look_at((0,), 0.5) == 0


def test_answers_are_shown_with_their_question(records: Records) -> None:
    page = Page(render_page(with_texts(records)))
    names = [attrs["id"] for name, attrs in page.elements if name == "section" and "id" in attrs]
    assert names.index("answers") == names.index("cost") + 1
    said = page.html[page.html.index('<section id="answers"') :]
    assert '<h4 dir="auto">Who is it?</h4>' in said
    assert 'in the data</span></div><p class="answer" dir="auto">Orla Venn.</p>' in said
    assert "original says forget 0" in said
    assert "atwu-s0 says retain 0" in said
    assert "atwu-s1 says" not in said
    assert "leaked in some wording" in said
    assert said.count("<article") == 16
    assert "Venn. (no score, secret)" in page.visible
    assert "step 30<" in page.html


def test_a_page_of_little(records: Records, build_records: Callable[..., Records]) -> None:
    bare = [dataclasses.replace(run, run=None, log=(), trace=None) for run in records.runs[:1]]
    page = Page(render_page(Records("one run", {}, tuple(bare))))
    assert 'id="words"' not in page.html
    assert page.classed("missing")
    assert "atwu has the best UQ" in page.visible
    assert "tuned is not recorded" in page.visible
    assert not page.classed("references")
    only = Page(render_page(Records("references", records.references, ())))
    assert "original" in only.values("headline")


def changed(records: Records, label: str, change: Callable[[MetricValue], MetricValue]) -> Records:
    """The same with another UQ of one label, whose seeds become one."""
    run = records.of(label)[0]
    cell = change(dataclasses.replace(records.results[label].overall["UQ"], seeds=1, seed_std=None))
    run = dataclasses.replace(run, result=dataclasses.replace(run.result, overall={**run.result.overall, "UQ": cell}))
    return dataclasses.replace(
        records,
        runs=tuple(
            run if old is records.of(label)[0] else old for old in records.runs if old.label != label or old.seed == 0
        ),
    )


def test_commands_and_settings_hold_no_secrets(records: Records) -> None:
    command = "atwu report /srv/somebody/runs --judge-url 'https://orla:pw@host:8000/v1?key=abc'"
    bare = dataclasses.replace(
        records.runs[0],
        run=None,
        result=dataclasses.replace(records.runs[0].result, settings={"task_folder": "/srv/somebody/tasks", "seed": 1}),
    )
    study = {**records.study, "command": command}
    made = dataclasses.replace(records, study=study, runs=(bare, *records.runs[1:]))
    page = render_page(made, command=command)
    for secret in ("/srv", "somebody", "orla", "pw@", "abc"):
        assert secret not in page
    assert page.count("atwu report runs --judge-url https://host:8000/v1") == 2
    assert "&quot;task_folder&quot;: &quot;tasks&quot;" in page


def test_settings_all_share_are_told_once(records: Records) -> None:
    other = {**records.runs[-1].result.settings, "seed": 7, "rows": {"forget": "abc"}}
    last = dataclasses.replace(
        records.runs[-1], result=dataclasses.replace(records.runs[-1].result, settings=other), seed=0
    )
    made = dataclasses.replace(records, runs=(*records.of("atwu"), last))
    assert shared_settings([run.result for run in made.runs]) == {
        "metrics": ["memorization", "scores", "judge"],
        "judge": {"kind": "offline"},
    }
    page = render_page(made)
    assert page.count("&quot;kind&quot;: &quot;offline&quot;") == 1
    assert "&quot;seed&quot;: 7\n" in page
    assert "the same for all methods" in page


def test_places_of_this_machine_stay_private(records: Records) -> None:
    run = {**(records.runs[0].run or {}), "starting_model": {"model": "/srv/somebody/target"}}
    page = render_page(
        dataclasses.replace(records, runs=(dataclasses.replace(records.runs[0], run=run), *records.runs[1:]))
    )
    assert "/srv" not in page
    assert "&quot;model&quot;: &quot;target&quot;" in page


def test_commands_settings_and_versions(page: Page) -> None:
    assert "atwu study run headline --scale people-tiny" in page.visible
    assert "atwu report study --output report.html" in page.visible
    assert "scorer × likelihood, retain nll, learning rate 0.0003" in page.visible
    assert "run.json of seed 0, one of 2" in page.visible
    assert "atwu 0.1.0, torch 2.13.0" in page.visible


def test_every_metric_is_explained(page: Page, records: Records) -> None:
    for _, metric in lines_of(records.results):
        assert definition(metric), metric
        assert str(definition(metric)).replace("J_", "J").replace("ES Δ", "ESΔ") in page.visible
    assert short_name("recovered_J_P@int4") == "recovered J_P after rounding to 4 bits"
    assert short_name("mmlu") == "mmlu"
    assert short_name("N_delta_official") == "N Δ (official)"
    assert short_name("forget_all_port") == "targets (port)"
    assert subscripted("1 − J_W / J_W, ES Δ floored, ES") == (
        "<span>1 − J<sub>W</sub> / J<sub>W</sub>, ES<sub>Δ</sub> floored, ES</span>"
    )


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
