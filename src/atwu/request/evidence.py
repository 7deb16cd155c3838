"""The evidence of one request as a declared type. It has hashes of the forget rows, and the rows only on request."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import ConfigDict

from atwu._file_reading import read_json
from atwu._files import write_json
from atwu.evaluation.result import STRICT
from atwu.request.ledger import RegressionCheck
from atwu.request.request_folder import RowsUsed
from atwu.request.thresholds import ThresholdResult

EVIDENCE_SCHEMA: Final = "atwu.evidence/2"


@dataclass(frozen=True, slots=True)
class ForgetRow:
    """One forget row."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """The request."""

    about: str | None
    prepared_at: str
    forget: RowsUsed
    rows_measured: int
    """Number of forget rows that were measured, evenly spaced."""
    retain: RowsUsed | None
    holdout: RowsUsed
    forget_rows: tuple[ForgetRow, ...] = ()
    """The forget rows, if they are shown."""


@dataclass(frozen=True, slots=True)
class RunSetting:
    """One setting of the run."""

    name: str
    value: str
    reason: str
    """Empty if the setting was given."""


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """The training run."""

    method: str
    components: Mapping[str, str]
    """Forget loss, weighting, retain loss."""
    settings: tuple[RunSetting, ...]
    started_at: str
    steps: int
    kept_step: int
    """Step whose weights the run left."""
    rollbacks: int
    seconds: float
    """Duration of training in the process that finished it."""
    peak_memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class VerdictSummary:
    """The verdict of the request."""

    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class ThresholdReport:
    """The thresholds with their results."""

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
    """One metric of an attack."""

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
    """Number of the later request."""
    check: RegressionCheck


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The ledger of the request."""

    request_number: int
    requests_total: int
    """Number of requests in the ledger by now."""
    checks: tuple[LaterCheck, ...]
    """Earlier requests on this model, and this request on later models."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one request."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

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
    """Warnings of the evaluations."""
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

    def write(self, path: Path) -> None:
        """Write the JSON atomically."""
        write_json(path, dataclasses.asdict(self))


def is_evidence(path: Path) -> bool:
    """Return whether a file is what `Evidence.write` wrote."""
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return False
    return isinstance(value, dict) and value.get("schema") == EVIDENCE_SCHEMA
