"""Evidence from a finished run: thresholds, what they need measured, attacks, hashes, and what all of it does not say."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from atwu._files import sha256_of
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, OVERALL, RETAIN
from atwu.evaluation.registry import all_metrics, find_metric, metric_definition
from atwu.evaluation.result import EvalResult
from atwu.evaluation.warnings import one_subject
from atwu.request.controller import read_history
from atwu.request.evidence import (
    Attack,
    AttackMetric,
    Evidence,
    ForgetRow,
    LaterCheck,
    LedgerSummary,
    RequestSummary,
    RunSetting,
    ThresholdReport,
    TrainingSummary,
    VerdictSummary,
    Weights,
)
from atwu.request.evidence_page import spoken_time
from atwu.request.evidence_session import AFTER, BEFORE, EvidenceSession, NotThereError, together
from atwu.request.ledger import Ledger
from atwu.request.metric_intervals import metric_interval
from atwu.request.preparation import utc_now
from atwu.request.request_folder import RequestRecord, RowsUsed
from atwu.request.thresholds import Threshold, ThresholdResult, Thresholds, check, metric_of, parse_thresholds
from atwu.request.verdict import DECISIVE_METRICS, OTHER_PROMPTS, read_request_verdict
from atwu.training.model_card import public_command, public_text
from atwu.training.progress import Say, logged

PARAPHRASES = "paraphrases"
"""What asking in other words is called among the attacks."""
RELATIVE = ("falls at most", "rises at most")


def gather(
    run: str | Path,
    *,
    thresholds: str | Path | None = None,
    show_rows: bool = False,
    device: str | None = None,
    say: Say = logged,
) -> Evidence:
    """Put together the evidence of a request; the same as `atwu evidence`.

    What a threshold or an attack needs and nobody measured is measured now, on the run's model with the run's rows, and kept in
    the run's folder; or it is said to be missing, and why.

    Args:
        run: folder of a finished run of `unlearn`.
        thresholds: YAML of limits; by default those that were set with the request.
        show_rows: put the rows themselves in, not only their hashes.
        device: where models are measured.
        say: receives one line of plain text per stage.

    Raises:
        ValueError, FileNotFoundError, OSError: see the message.
    """
    bench = EvidenceSession(run, thresholds=thresholds, device=device, say=say)
    given, request, record, fingerprint = bench.given, bench.request, bench.run, bench.fingerprint
    missing = _measure(bench)
    before = bench.all_of(BEFORE)
    after = together(bench.all_of(AFTER), (), before)
    attacks = tuple(_attacks(after, given, missing))
    course, judged = read_history(bench.folder.history), read_request_verdict(bench.folder.output)
    return Evidence(
        created_at=utc_now(),
        request=_asking(bench, after, show_rows=show_rows),
        training=TrainingSummary(
            method=record["method"],
            components={part: str(record["recipe"][part]) for part in ("forget_loss", "weighting", "retain_loss")},
            settings=tuple(_settings(request, seed=record["seed"])),
            started_at=record["started"],
            steps=record["steps"],
            kept_step=course.kept_step,
            rollbacks=course.rollbacks,
            seconds=record["train_seconds"],
            peak_memory_bytes=record["peak_memory_bytes"],
        ),
        verdict=VerdictSummary(judged.outcome, judged.reason),
        thresholds=_bar(given, request, [_checked(limit, before, after, missing) for limit in given.limits]),
        attacks=attacks,
        model_before=Weights(public_text(record["original_model"]["model"]), before.fingerprint, {}),
        model_after=Weights(public_text(str(bench.folder.output)), fingerprint, _files(bench.folder.output)),
        ledger=_ledger(bench),
        warnings=tuple(each for each in after.warnings if each not in map(one_subject, after.sets)),  # see `bounds`
        limitations=tuple(_limits(after, attacks, bench.measured)),
        versions=record["versions"],
        command=public_command(request.command),
    )


Missing = dict[tuple[str, str], str]
"""(Side, metric) -> why it was not measured."""


def _measure(bench: EvidenceSession) -> Missing:
    """Measure what is needed; says of the rest why it could not be."""
    missing, given = Missing(), bench.given
    try:
        bench.result(BEFORE)
        bench.result(AFTER)
    except NotThereError as error:
        raise ValueError(
            f"the thresholds have other settings than the verdict was measured with, and it cannot be measured anew: {error}; "
            "put it back, or leave these settings out."
        ) from None

    def ask(side: str, metric: str) -> None:
        try:
            bench.result(side, metric)
        except NotThereError as error:
            missing[side, metric] = str(error)

    for limit in given.limits:
        ask(AFTER, metric_of(limit))
        if limit.bound in RELATIVE:
            ask(BEFORE, metric_of(limit))
    for name in given.attacks:
        ask(AFTER, name)
    known = together(bench.all_of(AFTER), (), bench.all_of(BEFORE)).overall
    for limit in given.limits:
        if limit.split == OVERALL and limit.metric not in known:  # by more than a verdict needs of the starting model
            for name in find_metric(metric_of(limit)).compares_by or (metric_of(limit),):
                ask(BEFORE, name)
    return missing


def _checked(limit: Threshold, before: EvalResult, after: EvalResult, missing: Missing) -> ThresholdResult:
    """One limit beside what was measured, or why it was not."""
    found = check(limit, before, after)
    if found.passed is not None:
        return found
    name = metric_of(limit)
    why = missing.get((AFTER, name)) or missing.get((BEFORE, name)) or found.missing_reason
    return dataclasses.replace(found, missing_reason=why)


def _bar(given: Thresholds, request: RequestRecord, results: list[ThresholdResult]) -> ThresholdReport:
    """The thresholds, and whether they stood before anything was trained."""
    old, when = request.thresholds, spoken_time(request.prepared_at)
    beforehand = old.sha256 == given.sha256
    said = f"Set beforehand: written down at {when}, before training started."
    if not beforehand:
        said = (
            f"These are NOT the thresholds that were set beforehand. Those ({old.name}, sha256 {old.sha256}) were written "
            f"down at {when}; these were chosen after training. {_differing(old.text, old.name, given)}"
        )
    return ThresholdReport(given.name, given.sha256, given.text, beforehand, said, tuple(results))


def _differing(text: str, name: str, given: Thresholds) -> str:
    """What two files of thresholds say otherwise."""
    old = {limit.name: str(limit) for limit in parse_thresholds(text, name=name).limits}
    new = {limit.name: str(limit) for limit in given.limits}
    changed = [
        f"{each}: {old.get(each, 'no limit')} then, {new.get(each, 'no limit')} now"
        for each in dict.fromkeys([*old, *new])
        if old.get(each) != new.get(each)
    ]
    return f"They differ in {'; '.join(changed)}." if changed else "They differ in the attacks or settings alone."


# What was asked and done


def _asking(bench: EvidenceSession, after: EvalResult, *, show_rows: bool) -> RequestSummary:
    """The request; its rows by their hashes, and as they are only where that was asked for."""
    request = bench.request
    return RequestSummary(
        about=request.about,
        prepared_at=request.prepared_at,
        forget=_public(request.forget),
        rows_measured=len(after.rows[FORGET].ids),
        retain=None if request.retain is None else _public(request.retain),
        holdout=_public(request.holdout),
        forget_rows=tuple(ForgetRow(row.question, row.answer) for row in bench.every_row) if show_rows else (),
    )


def _public(rows: RowsUsed) -> RowsUsed:
    return dataclasses.replace(rows, source=public_text(rows.source))


def _settings(request: RequestRecord, *, seed: int) -> Iterator[RunSetting]:
    """Every setting that was chosen, with its reason, and those that were given."""
    chosen = {choice.name: choice for choice in request.choices}
    for name, choice in chosen.items():
        yield RunSetting(
            name, f"{choice.value:.3g}" if isinstance(choice.value, float) else str(choice.value), choice.reason
        )
    for name, value in request.key["options"].items():
        if name not in chosen:
            yield RunSetting(name, public_text(f"{value:g}" if isinstance(value, float) else str(value)), "")
    yield RunSetting("seed", str(seed), "")


def _files(folder: Path) -> dict[str, str]:
    """Sha256 of every weight file."""
    return {file.name: sha256_of(file) for file in sorted(folder.glob("*.safetensors"))}


# Attacks, ledger, limits


def _attacks(after: EvalResult, given: Thresholds, missing: Missing) -> Iterator[Attack]:
    """Every attack there is, with its numbers or why it was not tried."""
    again = tuple(
        _number(after, OTHER_PROMPTS, name) for name in after.sets.get(OTHER_PROMPTS, {}) if name in DECISIVE_METRICS
    )
    why = "" if again else "no row to forget is a question"
    yield Attack(PARAPHRASES, "the same questions in other words", bool(again), why, again)
    for name, metric in all_metrics().items():
        if not metric.attack:
            continue
        columns = [column for column in metric.columns if column.shown]
        numbers = [
            _number(after, split, each)
            for split, found in ((FORGET, after.sets[FORGET]), (OVERALL, after.overall))
            for each in found
            if any(column.on(split) and column.field(each) is not None for column in columns)
        ]
        why = ""
        if not numbers:
            needs = [need for need in metric.needs if need not in (FORGET, RETAIN, FORGET_OR_RETAIN)]
            asked = name in given.attacks or name in map(metric_of, given.limits)
            why = f"needs {' and '.join(needs)} rows" if needs else "not asked for by the thresholds"
            why = (missing.get((AFTER, name)) or "these rows have nothing to try it on") if asked else why
        yield Attack(name, metric.about, bool(numbers), why, tuple(numbers))


def _number(result: EvalResult, split: str, name: str) -> AttackMetric:
    found = (result.overall if split == OVERALL else result.sets[split])[name]
    low, high = metric_interval(result, split, name) or (found.low, found.high)
    return AttackMetric(f"{split}.{name}", metric_definition(name, split) or "", found.value, low, high, found.n)


def _ledger(bench: EvidenceSession) -> LedgerSummary | None:
    """What the ledger measured of earlier requests on this model, and of this one on later models."""
    if bench.request.ledger is None:
        return None
    place = Path(os.path.normpath(bench.folder.output / bench.request.ledger))
    if not (place / "requests").is_dir():
        raise FileNotFoundError(
            f"the ledger of {bench.folder.output}, {place}, is not there, so what came of its other requests is not known; "
            "put it back."
        )
    ledger = Ledger(place)
    entries = ledger.entries()
    own = next(
        (each for each in entries if Path(ledger.model(each.model_after)).resolve() == bench.folder.output.resolve()),
        None,
    )
    if own is None:
        return None
    later = [
        LaterCheck(entry.number, again)
        for entry in entries
        for again in entry.regression_checks
        if entry.number == own.number or again.number == own.number
    ]
    return LedgerSummary(own.number, len(entries), tuple(later))


def _limits(after: EvalResult, attacks: tuple[Attack, ...], measured: Collection[str]) -> Iterator[str]:
    """What all of this does not say."""
    tried, untried = (", ".join(each.name for each in attacks if each.tried is wanted) for wanted in (True, False))
    rows = len(after.rows[FORGET].ids)
    yield (
        "Unlearning lowers the model's tendency to say what the rows say. It is no proof of deletion: something of the rows "
        "may be left in the weights."
    )
    yield (
        f"What is not tried is not known. Tried: {tried or 'nothing'}. Not tried: {untried or 'nothing'}. Other questions, "
        "other attacks and further training may bring up more."
    )
    yield (
        f"Measured on {rows} {'row' if rows == 1 else 'rows'} to forget. An interval says what other rows of the same kind "
        "would change (95 %, bootstrap); with few rows it is wide, and too narrow where several rows are about one subject."
    )
    if any(find_metric(name).judged for name in measured):
        yield "Whether an answer states a fact was judged by rules, which make mistakes in both directions."
    yield (
        "It is about this model and no other copy: data sets, backups, logs, earlier checkpoints, caches and other models made "
        "of the same data are not touched."
    )
    yield "Rows go by their hashes. Who has a row can find its hash here; so can who guesses a short row word for word."
    yield "Times and hashes are as the machine wrote them that did the work; nobody else attests them."
