"""The evidence of one request, as a declared type: what is filed. Rows go by their hashes unless they are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import ConfigDict

from atwu._files import write_json
from atwu.evaluation.result import STRICT
from atwu.request.regression_check import RegressionCheck
from atwu.request.request_folder import RowsUsed
from atwu.request.thresholds import ThresholdResult

EVIDENCE_SCHEMA: Final = "atwu.evidence/1"


@dataclass(frozen=True, slots=True)
class ForgetRow:
    """One row to forget, shown."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """The request."""

    about: str | None
    """Who asked for what, in words."""
    prepared_at: str
    """When it was prepared: UTC, ISO 8601."""
    forget: RowsUsed
    rows_measured: int
    """Rows to forget that were measured, evenly spaced."""
    retain: RowsUsed | None
    holdout: RowsUsed
    """Rows that no model saw, which are compared with."""
    forget_rows: tuple[ForgetRow, ...] = ()
    """The rows to forget, where they are shown."""


@dataclass(frozen=True, slots=True)
class RunSetting:
    """One setting of the run."""

    name: str
    value: str
    reason: str
    """Empty where it was given."""


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What was done."""

    method: str
    components: Mapping[str, str]
    """Forget loss, weighting, retain loss."""
    settings: tuple[RunSetting, ...]
    started_at: str
    steps: int
    kept_step: int
    """Step whose weights were kept."""
    rollbacks: int
    """Times that it went back to earlier weights."""
    seconds: float
    """Of training, in the process that finished it."""
    peak_memory_bytes: int | None
    """Most bytes that training held."""


@dataclass(frozen=True, slots=True)
class VerdictSummary:
    """The verdict of the request."""

    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class ThresholdReport:
    """The thresholds, and what came of each."""

    name: str
    sha256: str
    text: str
    set_before_training: bool
    """Whether they were written down before training started."""
    statement: str
    """Since when they stand, in words."""
    results: tuple[ThresholdResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every threshold was measured and kept."""
        return all(each.passed for each in self.results)


@dataclass(frozen=True, slots=True)
class AttackMetric:
    """One number of an attack."""

    name: str
    definition: str
    value: float | None
    low: float | None
    high: float | None
    rows: int


@dataclass(frozen=True, slots=True)
class Attack:
    """A way to bring back what was removed, tried or not."""

    name: str
    description: str
    tried: bool
    not_tried_because: str = ""
    metrics: tuple[AttackMetric, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """A model by its weights."""

    name: str
    fingerprint: str
    """Over names and bytes of all weights (`atwu.modeling.fingerprint`)."""
    files: Mapping[str, str]
    """Weight file -> sha256, where they are at hand."""


@dataclass(frozen=True, slots=True)
class LaterCheck:
    """A request of the same ledger, measured on the model that a later one left."""

    after_request: int
    """Number of the request that left the model."""
    check: RegressionCheck


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The ledger that the request belongs to."""

    request_number: int
    requests_total: int
    """How many there are by now."""
    checks: tuple[LaterCheck, ...]
    """The earlier ones on this model, and this one on those of later ones."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is filed about one request."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    created_at: str
    """When it was put together: UTC, ISO 8601."""
    request: RequestSummary
    training: TrainingSummary
    verdict: VerdictSummary
    thresholds: ThresholdReport
    attacks: tuple[Attack, ...]
    model_before: Weights
    model_after: Weights
    ledger: LedgerSummary | None
    warnings: tuple[str, ...]
    """Of the evaluations."""
    limitations: tuple[str, ...]
    """What it does not say, in plain words."""
    versions: Mapping[str, str]
    command: str
    """What makes the same model again."""
    schema: Literal["atwu.evidence/1"] = EVIDENCE_SCHEMA

    @property
    def came_back(self) -> tuple[int, ...]:
        """Requests of the ledger that came back, as far as the newest measurement of each tells."""
        if self.ledger is None:
            return ()
        newest = {
            each.check.number: each.check for each in sorted(self.ledger.checks, key=lambda each: each.after_request)
        }
        return tuple(number for number, again in sorted(newest.items()) if again.came_back)

    @property
    def good(self) -> bool:
        """Whether every threshold was kept, and nothing came back."""
        return self.thresholds.passed and not self.came_back

    def write(self, path: Path) -> None:
        """Write the JSON so that a reader sees the old file or the whole new one."""
        write_json(path, dataclasses.asdict(self))
