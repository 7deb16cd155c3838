"""Collect the evidence of a finished run: thresholds, attacks, hashes, and limitations."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from atwu._files import sha256_of
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, OVERALL, RETAIN
from atwu.evaluation.registry import all_metrics, find_metric, metric_definition
from atwu.evaluation.result import EvalResult
from atwu.evaluation.result_checks import one_subject
from atwu.request.auto_settings import Choice
from atwu.request.evidence import (
    Attack,
    AttackMetric,
    Evidence,
    ForgetRow,
    LaterCheck,
    LedgerSummary,
    RequestSummary,
    ThresholdReport,
    TrainingSummary,
    VerdictSummary,
    Weights,
    readable_time,
)
from atwu.request.evidence_session import AFTER, BEFORE, EvidenceSession, MissingInputError, merge_results
from atwu.request.goal_evaluations import read_history
from atwu.request.ledger import Ledger
from atwu.request.request_folder import RequestRecord, RowsUsed, utc_now
from atwu.request.thresholds import Thresholds, check, metric_of, parse_thresholds
from atwu.request.verdict import read_request_verdict
from atwu.request.verdict_metrics import DECISIVE_METRICS, OTHER_PROMPTS, metric_interval
from atwu.training.model_card import public_command, public_text
from atwu.training.progress import Say, logged


def gather(
    run: str | Path,
    *,
    thresholds: str | Path | None = None,
    show_rows: bool = False,
    device: str | None = None,
    say: Say = logged,
) -> Evidence:
    """Collect the evidence of a request; the same as `atwu evidence`.

    Missing measurements of a threshold or an attack are made now, on the run's model and rows, and stored in the folder of
    the run. The evidence says which of them are impossible, and why.

    Args:
        run: folder of a finished run of `unlearn`.
        thresholds: YAML of thresholds; by default those recorded with the request.
        show_rows: include the forget rows, not only their hashes.
        device: device for measurements.
        say: receives one line of plain text per stage.

    Raises:
        ValueError, FileNotFoundError, OSError: see the message.
    """
    session = EvidenceSession(run, thresholds=thresholds, device=device, say=say)
    given, request, record, fingerprint = session.given, session.request, session.run, session.fingerprint
    missing = _measure(session)
    before = session.all_of(BEFORE)
    after = merge_results(session.all_of(AFTER), (), before)
    attacks = tuple(_attacks(after, given, missing))
    history, verdict = read_history(session.folder.history), read_request_verdict(session.folder.run)
    shown = [ForgetRow(row.question, row.answer) for row in session.rows(FORGET)] if show_rows else ()
    return Evidence(
        created_at=utc_now(),
        request=RequestSummary(
            about=request.about,
            prepared_at=request.prepared_at,
            forget=_public(request.forget),
            rows_measured=len(after.rows[FORGET].ids),
            retain=None if request.retain is None else _public(request.retain),
            holdout=_public(request.holdout),
            forget_rows=tuple(shown),
        ),
        training=TrainingSummary(
            method=record["method"],
            components={part: str(record["recipe"][part]) for part in ("forget_loss", "weighting", "retain_loss")},
            settings=_settings(request, seed=record["seed"]),
            started_at=record["started"],
            steps=record["steps"],
            kept_step=history.kept_step,
            rollbacks=history.rollbacks,
            seconds=record["train_seconds"],
            peak_memory_bytes=record["peak_memory_bytes"],
        ),
        verdict=VerdictSummary(verdict.outcome, verdict.reason),
        thresholds=_threshold_report(given, request, before, after, missing),
        attacks=attacks,
        model_before=Weights(public_text(record["original_model"]["model"]), before.fingerprint, {}),
        model_after=Weights(
            public_text(str(session.folder.run)),
            fingerprint,
            {file.name: sha256_of(file) for file in sorted(session.folder.run.glob("*.safetensors"))},
        ),
        ledger=_ledger(session),
        warnings=tuple(each for each in after.warnings if each not in map(one_subject, after.sets)),  # see `bounds`
        limitations=tuple(_limitations(after, attacks, session.measured)),
        versions=record["versions"],
        command=public_command(request.command),
    )


Missing = dict[tuple[str, str], str]
"""(Model, metric) -> why it was not measured."""


def _measure(session: EvidenceSession) -> Missing:
    """Measure what the thresholds and attacks need; return why the rest could not be measured."""
    missing, given = Missing(), session.given
    try:
        session.result(BEFORE)
        session.result(AFTER)
    except MissingInputError as error:
        raise ValueError(
            f"the settings of the thresholds differ from those of the verdict, which cannot be measured again: {error}; "
            "restore what is missing, or remove these settings."
        ) from None

    def ask(side: str, metric: str) -> None:
        try:
            session.result(side, metric)
        except MissingInputError as error:
            missing[side, metric] = str(error)

    for limit in given.thresholds:
        ask(AFTER, metric_of(limit))
        if limit.relative:
            ask(BEFORE, metric_of(limit))
    for name in given.attacks:
        ask(AFTER, name)
    known = merge_results(session.all_of(AFTER), (), session.all_of(BEFORE)).overall
    for limit in given.thresholds:  # some need more metrics of the original model than a verdict
        if limit.split == OVERALL and limit.metric not in known:
            for name in find_metric(metric_of(limit)).reference_metrics or (metric_of(limit),):
                ask(BEFORE, name)
    return missing


def _threshold_report(
    given: Thresholds, request: RequestRecord, before: EvalResult, after: EvalResult, missing: Missing
) -> ThresholdReport:
    """Return the thresholds with results, and whether they were recorded before training."""
    results = []
    for limit in given.thresholds:
        found, name = check(limit, before, after), metric_of(limit)
        if found.passed is None:
            why = missing.get((AFTER, name)) or missing.get((BEFORE, name)) or found.missing_reason
            found = replace(found, missing_reason=why)
        results.append(found)
    recorded, when = request.thresholds, readable_time(request.prepared_at)
    set_before_training = recorded.sha256 == given.sha256
    statement = f"Set before training: recorded at {when}."
    if not set_before_training:
        earlier = parse_thresholds(recorded.text, name=recorded.name).thresholds
        old, new = ({limit.name: str(limit) for limit in limits} for limits in (earlier, given.thresholds))
        changed = [
            f"{each}: {old.get(each, 'no limit')} before, {new.get(each, 'no limit')} now"
            for each in dict.fromkeys([*old, *new])
            if old.get(each) != new.get(each)
        ]
        differences = f"in {'; '.join(changed)}" if changed else "only in attacks or settings"
        statement = (
            f"These are NOT the thresholds that were set before training. Those ({recorded.name}, sha256 {recorded.sha256}) "
            f"were recorded at {when}; these were chosen after training. "
            f"They differ {differences}."
        )
    return ThresholdReport(given.name, given.sha256, given.text, set_before_training, statement, tuple(results))


def _public(rows: RowsUsed) -> RowsUsed:
    return replace(rows, source=public_text(rows.source))


def _settings(request: RequestRecord, *, seed: int) -> tuple[Choice, ...]:
    """Return every chosen setting with its reason, then the given ones."""
    chosen = {
        each.name: replace(each, value=f"{each.value:.3g}" if isinstance(each.value, float) else str(each.value))
        for each in request.choices
    }
    given = {
        name: Choice(name, public_text(f"{value:g}" if isinstance(value, float) else str(value)), "")
        for name, value in request.key["options"].items()
    }
    return (*(chosen | given | chosen).values(), Choice("seed", str(seed), ""))


def _attacks(after: EvalResult, given: Thresholds, missing: Missing) -> Iterator[Attack]:
    """Yield every known attack, with its metrics or why it was not tried."""
    metrics = tuple(
        _attack_metric(after, OTHER_PROMPTS, name)
        for name in after.sets.get(OTHER_PROMPTS, {})
        if name in DECISIVE_METRICS
    )
    why = "" if metrics else "no forget row is a question"
    yield Attack(
        "other prompts",
        "the same questions with other prompts: paraphrases of the rows, or prompt prefixes for rows without",
        bool(metrics),
        why,
        metrics,
    )
    for name, metric in all_metrics().items():
        if not metric.attack:
            continue
        columns = [column for column in metric.columns if column.shown]
        numbers = [
            _attack_metric(after, split, each)
            for split, found in ((FORGET, after.sets[FORGET]), (OVERALL, after.overall))
            for each in found
            if any(column.on(split) and column.field(each) is not None for column in columns)
        ]
        why = ""
        if not numbers:
            needs = [need for need in metric.needs if need not in (FORGET, RETAIN, FORGET_OR_RETAIN)]
            requested = name in given.attacks or name in map(metric_of, given.thresholds)
            why = f"needs {' and '.join(needs)} rows" if needs else "not requested by the thresholds"
            why = (missing.get((AFTER, name)) or "not applicable to these rows") if requested else why
        yield Attack(name, metric.about, bool(numbers), why, tuple(numbers))


def _attack_metric(result: EvalResult, split: str, name: str) -> AttackMetric:
    found = (result.overall if split == OVERALL else result.sets[split])[name]
    low, high = metric_interval(result, split, name) or (found.low, found.high)
    return AttackMetric(f"{split}.{name}", metric_definition(name, split) or "", found.value, low, high, found.n)


def _ledger(session: EvidenceSession) -> LedgerSummary | None:
    """Return what the ledger has measured of earlier requests on this model, and of this request on later models."""
    if session.request.ledger is None:
        return None
    place = Path(os.path.normpath(session.folder.run / session.request.ledger))
    if not (place / "requests").is_dir():
        raise FileNotFoundError(
            f"the ledger of {session.folder.run}, {place}, is missing, so the results of its other requests are unknown; "
            "restore it."
        )
    ledger = Ledger(place)
    entries = ledger.entries()
    own = next(
        (each for each in entries if Path(ledger.model(each.model_after)).resolve() == session.folder.run.resolve()),
        None,
    )
    if own is None:
        return None
    later = [
        LaterCheck(entry.number, check)
        for entry in entries
        for check in entry.regression_checks
        if entry.number == own.number or check.number == own.number
    ]
    return LedgerSummary(own.number, len(entries), tuple(later))


def _limitations(after: EvalResult, attacks: tuple[Attack, ...], measured: Collection[str]) -> Iterator[str]:
    """Yield what the evidence does not show."""
    tried, untried = (", ".join(each.name for each in attacks if each.tried is wanted) for wanted in (True, False))
    rows = len(after.rows[FORGET].ids)
    yield (
        "Unlearning makes the model less likely to reproduce the forget rows. This is no proof of deletion: no tool can prove "
        "that nothing remains in the weights."
    )
    yield (
        f"Tried: {tried or 'nothing'}. Not tried: {untried or 'nothing'}. Other questions, other attacks and further training "
        "may recover more."
    )
    yield (
        f"Measured on {rows} forget {'row' if rows == 1 else 'rows'}. The 95 % intervals (bootstrap) cover other rows of the "
        "same kind. They are wide with few rows, and too narrow if several rows share a subject."
    )
    if any(find_metric(name).judged for name in measured):
        yield "Rules judge whether an answer states a fact. They make errors in both directions."
    yield (
        "The evidence covers this model only. Data sets, backups, logs, earlier checkpoints, caches and other models trained "
        "on the same data are not touched."
    )
    yield "Rows are listed by hash. Anyone who has a row, or guesses a short row word for word, can find its hash here."
    yield "Times and hashes were written by the machine that did the work; no third party confirms them."
