"""The evidence as an HTML page: text and numbers for the template `evidence.html` of `atwu.report.page`."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

from atwu._files import sha256_of, write_text
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.registry import metric_definition, short_name
from atwu.report.page.page_templates import render_template
from atwu.request.evidence import Evidence
from atwu.request.thresholds import ThresholdResult, set_of
from atwu.request.verdict_metrics import DECISIVE_METRICS, SET_NAMES

SPELLED = {"ES": "extraction strength", "J_P": "leak with any question form"}
"""Short name of a metric -> name on the page."""
_SHORT = re.compile(rf"\b(?:{'|'.join(SPELLED)})\b")
PASSED, UNSURE, FAILED, MISSING = "met", "met, not significant", "not met", "not measured"
"""Results of a threshold."""
MARKS = {PASSED: "pass", UNSURE: "unsure", FAILED: "fail", MISSING: "missing"}
"""Result -> CSS class on the page."""


def write_evidence_page(evidence: Evidence, path: Path, *, data: Path) -> None:
    """Write the page as one self-contained HTML file; it names the JSON file with its hash."""
    write_text(path, render_evidence_page(evidence, data=data.name, sha256=sha256_of(data)))


def render_evidence_page(evidence: Evidence, *, data: str, sha256: str) -> str:
    """Return the page as text; equal evidence gives an equal page."""
    return render_template(
        "evidence.html",
        title="Evidence of an unlearning request",
        evidence=evidence,
        lead=summary_text(evidence),
        set_names=SET_NAMES,
        measures=DECISIVE_METRICS,
        data=data,
        sha256=sha256,
        marks=MARKS,
        between=between,
        figure=format_figure,
        definition=definition,
        metric_name=metric_name,
        outcome=threshold_outcome,
        shown_limit=shown_limit,
        readable_time=readable_time,
    )


def threshold_outcome(checked: ThresholdResult) -> str:
    """Return the result of a threshold in a few words."""
    if checked.passed is None:
        return MISSING
    if not checked.passed:
        return FAILED
    return PASSED if checked.conclusive else UNSURE


def summary_text(evidence: Evidence) -> str:
    """Return the summary, the first paragraph of the page."""
    results = evidence.thresholds.results
    counts = {
        word: sum(threshold_outcome(each) == word for each in results) for word in (PASSED, UNSURE, FAILED, MISSING)
    }
    met = counts[PASSED] + counts[UNSURE]
    every = f"All {met} thresholds are met" if met > 1 else "The one threshold is met"
    parts = [every if met == len(results) else f"{met} of {len(results)} thresholds {'is' if met == 1 else 'are'} met"]
    if counts[UNSURE]:
        parts[0] += f" ({counts[UNSURE]} not significantly: the 95 % interval includes the limit)"
    if counts[FAILED]:
        parts.append(f"{counts[FAILED]} {'is' if counts[FAILED] == 1 else 'are'} not met")
    if counts[MISSING]:
        parts.append(f"{counts[MISSING]} {'was' if counts[MISSING] == 1 else 'were'} not measured")
    text = "; ".join(parts) + "."
    if not evidence.thresholds.set_before_training:
        text += " They are not the thresholds that were set before training."
    text += f" Verdict of the run: {evidence.verdict.outcome}."
    for number in evidence.came_back:
        own = evidence.ledger is not None and evidence.ledger.request_number == number
        text += (
            " A later request brought these forget rows back."
            if own
            else f" This request brought back the forget rows of request {number}."
        )
    return text


def readable_time(iso: str) -> str:
    """Return a time to read: 22 November 2026, 15:20 UTC."""
    time = datetime.datetime.fromisoformat(iso)
    return f"{time.day} {time:%B %Y, %H:%M} UTC"


def metric_name(name: str) -> str:
    """Return set and metric to read, such as `forget set: extraction strength`."""
    split, _, metric = name.partition(".")
    where = "compared with the original model" if split == OVERALL else SET_NAMES[set_of(split)]
    return f"{where}: {_spelled(short_name(metric, split))}"


def definition(name: str) -> str:
    """Return the definition of a metric."""
    split, _, metric = name.partition(".")
    return _spelled(metric_definition(metric, split) or "")


def shown_limit(checked: ThresholdResult, holdout: str) -> str:
    """Return a threshold as in the file, with the limit in place of `holdout`."""
    return checked.threshold.replace("holdout", f"{format_figure(checked.limit)}{holdout}")


def _spelled(text: str) -> str:
    """Spell out short names of metrics in a text."""
    return _SHORT.sub(lambda found: SPELLED[found[0]], text)


def format_figure(value: float | None) -> str:
    """Return a number to read."""
    if value is None:
        return "–"
    return (
        f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.001 or value == 0 else f"{value:.1g}"
    )


def between(low: float | None, high: float | None) -> str:
    """Return an interval to read; empty without one."""
    return "" if low is None or high is None else f"[{format_figure(low)}, {format_figure(high)}]"
