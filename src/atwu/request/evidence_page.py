"""Evidence as one page for people: what the template `evidence.html` of `atwu.report.page` calls to say it in words."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

from atwu._files import sha256_of, write_text
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.registry import metric_definition, short_name
from atwu.report.page.page_templates import render_template
from atwu.request.evidence import Evidence
from atwu.request.thresholds import ThresholdResult
from atwu.request.verdict import DECISIVE_METRICS, SET_NAMES

SPELLED = {"ES": "extraction strength", "J_P": "leak in any wording"}
"""Short name of a metric -> what people read."""
_SHORT = re.compile(rf"\b(?:{'|'.join(SPELLED)})\b")
PASSED, UNSURE, FAILED, MISSING = "met", "met, within chance", "not met", "not measured"
"""What came of a threshold."""
MARKS = {PASSED: "pass", UNSURE: "unsure", FAILED: "fail", MISSING: "missing"}
"""How the page shows it."""


def write_evidence_page(evidence: Evidence, path: Path, *, data: Path) -> None:
    """Write the page as one HTML file that needs nothing else; it names the JSON of the same with its hash."""
    write_text(path, render_evidence_page(evidence, data=data.name, sha256=sha256_of(data)))


def render_evidence_page(evidence: Evidence, *, data: str, sha256: str) -> str:
    """The page as text; equal evidence gives equal pages."""
    return render_template(
        "evidence.html",
        title="Evidence of an unlearning request",
        evidence=evidence,
        lead=lead(evidence),
        set_names=SET_NAMES,
        measures=DECISIVE_METRICS,
        data=data,
        sha256=sha256,
        marks=MARKS,
        between=between,
        figure=format_figure,
        meaning=meaning,
        number_name=number_name,
        outcome=threshold_outcome,
        shown_limit=shown_limit,
        spoken_time=spoken_time,
    )


def threshold_outcome(checked: ThresholdResult) -> str:
    """What came of a threshold, in a few words."""
    if checked.passed is None:
        return MISSING
    if not checked.passed:
        return FAILED
    return PASSED if checked.conclusive else UNSURE


def lead(evidence: Evidence) -> str:
    """The first paragraph: what came of it."""
    results = evidence.thresholds.results
    counts = {
        word: sum(threshold_outcome(each) == word for each in results) for word in (PASSED, UNSURE, FAILED, MISSING)
    }
    met = counts[PASSED] + counts[UNSURE]
    every = f"All {met} thresholds are met" if met > 1 else "The one threshold is met"
    said = [every if met == len(results) else f"{met} of {len(results)} thresholds {'is' if met == 1 else 'are'} met"]
    if counts[UNSURE]:
        said[0] += f", {counts[UNSURE]} of them within chance: other rows like these could have missed them"
    if counts[FAILED]:
        said.append(f"{counts[FAILED]} {'is' if counts[FAILED] == 1 else 'are'} not met")
    if counts[MISSING]:
        said.append(f"{counts[MISSING]} {'was' if counts[MISSING] == 1 else 'were'} not measured")
    told = "; ".join(said) + "."
    if not evidence.thresholds.set_before_training:
        told += " They were not the ones set beforehand."
    told += f" The verdict of the run: {evidence.verdict.outcome}."
    for number in evidence.came_back:
        own = evidence.ledger is not None and evidence.ledger.request_number == number
        told += (
            " A later request brought these rows back." if own else f" It brought back what request {number} removed."
        )
    return told


def spoken_time(iso: str) -> str:
    """A time for people: 22 November 2026, 15:20 UTC."""
    time = datetime.datetime.fromisoformat(iso)
    return f"{time.day} {time:%B %Y, %H:%M} UTC"


def number_name(name: str) -> str:
    """A number in words: rows to forget: extraction strength."""
    split, _, metric = name.partition(".")
    where = "compared with the starting model" if split == OVERALL else SET_NAMES[split]
    return f"{where}: {_spelled(short_name(metric, split))}"


def meaning(name: str) -> str:
    """What a number tells."""
    split, _, metric = name.partition(".")
    return _spelled(metric_definition(metric, split) or "")


def shown_limit(checked: ThresholdResult, holdout: str) -> str:
    """A threshold as the file has it, with the number in place of `holdout` and what it is."""
    return checked.threshold.replace("holdout", f"{format_figure(checked.limit)}{holdout}")


def _spelled(text: str) -> str:
    """Short names of metrics in a text, spelled out."""
    return _SHORT.sub(lambda found: SPELLED[found[0]], text)


def format_figure(value: float | None) -> str:
    """A number to read."""
    if value is None:
        return "–"
    return (
        f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.001 or value == 0 else f"{value:.1g}"
    )


def between(low: float | None, high: float | None) -> str:
    """An interval to read; empty without one."""
    return "" if low is None or high is None else f"[{format_figure(low)}, {format_figure(high)}]"
