"""Puts the page together and writes it: what is in which section, in which order, and the policy that keeps it offline."""

from __future__ import annotations

import base64
import hashlib
import os
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from atwu.evaluation.result import EvalResult
from atwu.report.frame import lines_of, tidy
from atwu.report.names import definition, is_attack
from atwu.report.page.answers import answers_section
from atwu.report.page.drawings import Drawings, grid
from atwu.report.page.html import Html, join, tag
from atwu.report.page.reproduce import reproduce_section
from atwu.report.page.results import legend, lines_table, metric_table, name_html, subscripted
from atwu.report.page.summary import facts, summary
from atwu.report.page.words import level_css, words_section
from atwu.report.records import Records
from atwu.report.table import headline_lines, left_out


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with its place in the navigation."""

    name: str
    """Anchor."""
    link: str
    title: str
    body: Html | None
    """None: there is nothing to show, and it is left out."""


def write_page(records: Records, path: str | Path, *, command: str | None = None, focus: str = "atwu") -> None:
    """Write a report as one HTML file that needs nothing else; a reader sees the old file or the whole new one.

    Args:
        records: finished runs.
        path: file to write; its folder is made when missing.
        command: what makes this page again, shown in it.
        focus: label that stands out in figures and tables.
    """
    page = render_page(records, command=command, focus=focus)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def render_page(records: Records, *, command: str | None = None, focus: str = "atwu") -> str:
    """The page as text; equal records give equal pages."""
    drawings = Drawings(records, focus=focus)
    sections = [section for section in _sections(records, drawings, command, focus) if section.body is not None]
    style = _asset("page.css") + level_css() + drawings.css
    script = _asset("page.js")
    links = join(tag("li", None, tag("a", {"href": f"#{section.name}"}, section.link)) for section in sections)
    values = {
        "title": tag("title", None, records.title)[len("<title>") : -len("</title>")],
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "links": links,
        "header": join((tag("h1", None, records.title), summary(records, focus=focus), facts(records))),
        "sections": join((_shown(section) for section in sections), "\n"),
    }
    return string.Template(_asset("page.html")).substitute(values)


def _sections(records: Records, drawings: Drawings, command: str | None, focus: str) -> Iterator[Section]:
    yield Section("results", "Results", "Results", _results(records, focus))
    yield Section(
        "trade-off", "Trade-off", "Forgetting against keeping", grid(drawings.show("trade_off", "trade_off_judged"))
    )
    yield Section("words", "Words", "Which words the scores point at", words_section(records))
    names = ("auroc_ridge", "pooled_roc", "auroc_progression")
    yield Section("scores", "Scores", "How well the scores find the secret", grid(drawings.show(*names)))
    yield Section("training", "Training", "Losses and scores over training", grid(drawings.show("training_curves")))
    yield Section("attacks", "Attacks", "Probes and attacks", _attacks(records, drawings))
    yield Section("cost", "Cost", "Cost", grid(drawings.show("cost")))
    yield Section("answers", "Answers", "Sample answers", answers_section(records))
    yield Section("warnings", "Warnings", "Warnings of the evaluations", _warnings(records))
    yield Section("reproduce", "Reproduce", "Reproduce", reproduce_section(records, command))
    yield Section("reading", "How to read", "How to read", _reading(records))


def _shown(section: Section) -> Html:
    return tag(
        "section",
        {"id": section.name, "aria-labelledby": f"{section.name}-title"},
        tag("h2", {"id": f"{section.name}-title"}, section.title),
        section.body,
    )


def _results(records: Records, focus: str) -> Html:
    lines = headline_lines(records)
    more = [line for line in lines_of(tidy(records.results)) if line not in lines]
    caption = "Methods, and above them the models they are compared with. Column heads sort."
    table = metric_table(records, lines, name="headline", caption=caption, more=more, focus=focus)
    every = f" All {len(lines) + len(more)} metrics"
    controls = tag(
        "div",
        {"class": "controls", "role": "group", "aria-label": "What the table shows", "hidden": True},
        tag("label", {"class": "find"}, "Methods ", Html('<input type="search" id="find" placeholder="filter">')),
        tag("label", {"class": "check"}, Html('<input type="checkbox" id="intervals" checked>'), " Intervals"),
        tag("label", {"class": "check"}, Html('<input type="checkbox" id="every">'), every) if more else None,
        tag("span", {"id": "found", "role": "status", "class": "note"}, ""),
    )
    return join((controls, table, legend(records, [*lines, *more])))


def _attacks(records: Records, drawings: Drawings) -> Html:
    figures = grid(drawings.show("attacks", "attack_families"))
    lines = [line for line in lines_of(tidy(records.results)) if is_attack(line)]
    if not lines:
        return figures
    table = lines_table(records, lines, name="attack-table", caption="Every probe and attack. Column heads sort.")
    return join((figures, tag("details", None, tag("summary", None, f"All {len(lines)} numbers"), table)))


def _warnings(records: Records) -> Html:
    """Every sentence once, with the models it was said of."""
    said: dict[str, dict[str, None]] = {}
    every: list[tuple[str, EvalResult]] = list(records.references.items())
    every += [(label, run.result) for label in records.labels for run in records.of(label)]
    for name, result in every:
        for sentence in result.warnings:
            said.setdefault(sentence, {})[name] = None
    missing = [
        tag("li", None, f"Left out: {reason or 'no reason is recorded'}.", " ", tag("span", {"class": "told"}, name))
        for name, reason in left_out(records).items()
    ]
    if not said and not missing:
        return tag("p", None, "None.")
    whole = len({name for name, _ in every})
    entries = (
        tag(
            "li",
            None,
            sentence,
            " ",
            tag("span", {"class": "told"}, "all models" if len(names) == whole else ", ".join(names)),
        )
        for sentence, names in said.items()
    )
    return tag("ul", {"class": "warnings"}, *missing, *entries)


def _reading(records: Records) -> Html:
    headline = headline_lines(records)
    first = list(dict.fromkeys(metric for _, metric in headline))
    others = dict.fromkeys(metric for _, metric in lines_of(tidy(records.results)) if metric not in first)
    further = [metric for metric in others if definition(metric) is not None]
    rest = tag("summary", None, f"{len(further)} further metrics"), _definitions(further)
    return join((tag("p", None, _ADVICE), _definitions(first), tag("details", None, *rest) if further else ""))


_ADVICE = (
    "Look at three models: the original shows what there was to forget, the retain-only model what a model looks like that "
    "never knew it. Forgetting alone is worthless, since a broken model scores perfectly on every forget metric: read forget "
    "and retain numbers, fluency and win rate together. Low numbers do not prove deletion; they say that these questions, "
    "these attacks and this judge did not bring the facts up. A metric that tuning made large is optimistic for the winner."
)


def _definitions(metrics: Sequence[str]) -> Html:
    entries = [(metric, meaning) for metric in metrics if (meaning := definition(metric)) is not None]
    return tag(
        "dl",
        {"class": "definitions"},
        *(
            tag("div", None, tag("dt", None, name_html(name)), tag("dd", None, subscripted(f"{told}.")))
            for name, told in entries
        ),
    )


def _hash(content: str) -> str:
    """Source expression of a security policy that allows this very text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _asset(name: str) -> str:
    return files("atwu.report.page").joinpath(name).read_text(encoding="utf-8")
