"""The evidence of one request, as a declared type and as an HTML page (template `evidence.html` of `atwu.report.page`).

It has hashes of the forget rows, and the rows only on request.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import with_config

from atwu._file_reading import read_json
from atwu._files import sha256_of, write_json, write_text
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.registry import metric_definition, short_name
from atwu.evaluation.result import STRICT
from atwu.report.page.page_templates import render_template
from atwu.request.auto_settings import Choice
from atwu.request.ledger import RegressionCheck
from atwu.request.request_folder import RowsUsed
from atwu.request.thresholds import ThresholdResult, set_of
from atwu.request.verdict_metrics import DECISIVE_METRICS, SET_NAMES

EVIDENCE_SCHEMA: Final = "atwu.evidence/2"
SPELLED = {"ES": "extraction strength", "J_P": "leak with any question form"}
"""Short name of a metric -> name on the page."""
_SHORT = re.compile(rf"\b(?:{'|'.join(SPELLED)})\b")
PASSED, UNSURE, FAILED, MISSING = "met", "met, not significant", "not met", "not measured"
"""Results of a threshold."""
MARKS = {PASSED: "pass", UNSURE: "unsure", FAILED: "fail", MISSING: "missing"}
"""Result -> CSS class on the page."""


@dataclass(frozen=True, slots=True)
class ForgetRow:
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class RequestSummary:
    about: str | None
    prepared_at: str
    forget: RowsUsed
    rows_measured: int
    """Number of forget rows that were measured, evenly spaced."""
    retain: RowsUsed | None
    holdout: RowsUsed
    forget_rows: tuple[ForgetRow, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    method: str
    components: Mapping[str, str]
    """Forget loss, weighting, retain loss."""
    settings: tuple[Choice, ...]
    """With values as text; the reason of a given setting is empty."""
    started_at: str
    steps: int
    kept_step: int
    rollbacks: int
    seconds: float
    """Duration of training in the process that finished it."""
    peak_memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class VerdictSummary:
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class ThresholdReport:
    name: str
    sha256: str
    text: str
    set_before_training: bool
    statement: str
    """A sentence about when they were recorded."""
    results: tuple[ThresholdResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every threshold was measured and is met."""
        return all(each.passed for each in self.results)


@dataclass(frozen=True, slots=True)
class AttackMetric:
    name: str
    definition: str
    value: float | None
    low: float | None
    high: float | None
    rows: int


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack that tries to recover forgotten rows."""

    name: str
    description: str
    tried: bool
    not_tried_because: str = ""
    metrics: tuple[AttackMetric, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """A model by name and hashes."""

    name: str
    fingerprint: str
    """Hash of the names and values of all weights (`atwu.modeling.fingerprint`)."""
    files: Mapping[str, str]
    """Weight file -> sha256; empty if the files are not available."""


@dataclass(frozen=True, slots=True)
class LaterCheck:
    """Another request of the ledger, measured again after a later request."""

    after_request: int
    check: RegressionCheck


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    request_number: int
    requests_total: int
    """Number of requests in the ledger by now."""
    checks: tuple[LaterCheck, ...]
    """Earlier requests on this model, and this request on later models."""


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Evidence:
    created_at: str
    """Time of this evidence: UTC, ISO 8601."""
    request: RequestSummary
    training: TrainingSummary
    verdict: VerdictSummary
    thresholds: ThresholdReport
    attacks: tuple[Attack, ...]
    model_before: Weights
    model_after: Weights
    ledger: LedgerSummary | None
    warnings: tuple[str, ...]
    limitations: tuple[str, ...]
    """What the evidence does not show."""
    versions: Mapping[str, str]
    command: str
    """Command that reproduces the model."""
    schema: Literal["atwu.evidence/2"] = EVIDENCE_SCHEMA

    @property
    def came_back(self) -> tuple[int, ...]:
        """Numbers of the requests whose rows came back in their newest measurement."""
        if self.ledger is None:
            return ()
        newest = {
            each.check.number: each.check for each in sorted(self.ledger.checks, key=lambda each: each.after_request)
        }
        return tuple(number for number, again in sorted(newest.items()) if again.came_back)

    @property
    def good(self) -> bool:
        """Whether every threshold is met and no request came back."""
        return self.thresholds.passed and not self.came_back

    def write(self, data: Path, page: Path) -> None:
        """Write the JSON atomically, then the page as one self-contained HTML file that names the JSON file with its hash."""
        write_json(data, dataclasses.asdict(self))
        write_text(page, render_evidence_page(self, data=data.name, sha256=sha256_of(data)))


def is_evidence(path: Path) -> bool:
    """Return whether a file is what `Evidence.write` wrote."""
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return False
    return isinstance(value, dict) and value.get("schema") == EVIDENCE_SCHEMA


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
    if checked.passed is None:
        return MISSING
    if not checked.passed:
        return FAILED
    return PASSED if checked.conclusive else UNSURE


def summary_text(evidence: Evidence) -> str:
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
    split, _, metric = name.partition(".")
    return _spelled(metric_definition(metric, split) or "")


def shown_limit(checked: ThresholdResult, holdout: str) -> str:
    """Return a threshold as in the file, with the limit in place of `holdout`."""
    return checked.threshold.replace("holdout", f"{format_figure(checked.limit)}{holdout}")


def _spelled(text: str) -> str:
    return _SHORT.sub(lambda found: SPELLED[found[0]], text)


def format_figure(value: float | None) -> str:
    if value is None:
        return "–"
    return (
        f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.001 or value == 0 else f"{value:.1g}"
    )


def between(low: float | None, high: float | None) -> str:
    """Return an interval to read; empty without one."""
    return "" if low is None or high is None else f"[{format_figure(low)}, {format_figure(high)}]"
