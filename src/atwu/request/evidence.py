"""The evidence of one request, as a declared type and as an HTML page (template `evidence.html` of `atwu.report.page`).

It has hashes of the forget rows, and the rows only on request.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import with_config

from atwu._file_reading import read_json
from atwu._files import sha256_of, write_json, write_text
from atwu.evaluation.facts.fact_table import AS_SAVED, FactAnswer
from atwu.evaluation.result import STRICT
from atwu.report.page_templates import render_template
from atwu.request.auto_settings import Choice
from atwu.request.regression_check import RegressionCheck
from atwu.request.request_folder import RowsUsed
from atwu.request.verdict import FORGOTTEN, Criterion, StateCount

EVIDENCE_SCHEMA: Final = "atwu.evidence/4"


@dataclass(frozen=True, slots=True)
class ForgetRow:
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class RequestSummary:
    request_note: str | None
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
    rule: str
    criteria: tuple[Criterion, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """A model by name and hashes."""

    name: str
    fingerprint: str
    """Hash of the names and values of all weights (`atwu.modeling.load`)."""
    files: Mapping[str, str]
    """Weight file -> sha256; empty if the files are not available."""


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Evidence:
    created_at: str
    """Time of this evidence: UTC, ISO 8601."""
    request: RequestSummary
    training: TrainingSummary
    verdict: VerdictSummary
    states: tuple[StateCount, ...]
    """The model as saved, then other states and ways of asking."""
    leaks: tuple[FactAnswer, ...]
    """Every answer that states a fact, in any state."""
    model_before: Weights
    model_after: Weights
    earlier: tuple[RegressionCheck, ...]
    """The earlier requests on this model, asked again."""
    limitations: tuple[str, ...]
    """What the evidence does not show."""
    versions: Mapping[str, str]
    command: str
    """Command that reproduces the model."""
    schema: Literal["atwu.evidence/4"] = EVIDENCE_SCHEMA

    @property
    def came_back(self) -> tuple[int, ...]:
        """Numbers of the earlier requests whose facts came back."""
        return tuple(check.number for check in self.earlier if check.came_back)

    @property
    def good(self) -> bool:
        """Whether the facts are forgotten and no earlier request came back."""
        return self.verdict.outcome == FORGOTTEN and not self.came_back

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
        data=data,
        sha256=sha256,
        as_saved=AS_SAVED,
        figure=format_figure,
        interval=in_square_brackets,
        readable_time=readable_time,
    )


def summary_text(evidence: Evidence) -> str:
    """Return the evidence in a few sentences: the verdict, and what brings facts back."""
    text = f"Verdict of the run: {evidence.verdict.outcome}."
    saved = evidence.states[0].after
    text += f" As saved, the model states {saved.facts_stated} of {saved.facts} facts in {saved.answers} answers."
    worst = max(evidence.states, key=lambda state: state.after.facts_stated / max(state.after.facts, 1))
    if worst.after.facts_stated and worst.name != AS_SAVED:
        text += f" Most come out {worst.name}: {worst.after.facts_stated} of {worst.after.facts}"
        unknown = worst.unknown
        text += f" ({unknown.facts_stated} of {unknown.facts} facts that it never knew)." if unknown else "."
    for number in evidence.came_back:
        text += f" This request brought back the facts of request {number}."
    return text


def readable_time(iso: str) -> str:
    """Return a time to read: 22 November 2026, 15:20 UTC."""
    time = datetime.datetime.fromisoformat(iso)
    return f"{time.day} {time:%B %Y, %H:%M} UTC"


def format_figure(value: float | None) -> str:
    """Return a share or a loss to read."""
    return "–" if value is None else f"{value:.3g}"


def in_square_brackets(ends: tuple[float, float]) -> str:
    return f"[{ends[0]:.2f}, {ends[1]:.2f}]"
