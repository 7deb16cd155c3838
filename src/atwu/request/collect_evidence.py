"""Collect the evidence of a finished run: its verdict, the model asked in all states, hashes, and limitations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from atwu._files import sha256_of
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.fact_table import FactTable
from atwu.request.auto_settings import Choice
from atwu.request.evidence import (
    Evidence,
    ForgetRow,
    RequestSummary,
    TrainingSummary,
    VerdictSummary,
    Weights,
)
from atwu.request.evidence_states import StatesAsked, ask_in_all_states, unknown_counts
from atwu.request.finished_request import FinishedRequest, MissingInputError
from atwu.request.goal_evaluations import read_history
from atwu.request.request_folder import RequestRecord, RowsUsed, utc_now
from atwu.request.verdict import StateCount, read_request_verdict, state_counts
from atwu.training.model_card import public_command, public_text
from atwu.training.progress import Say, logged


def gather(run: str | Path, *, show_rows: bool = False, device: str | None = None, say: Say = logged) -> Evidence:
    """Collect the evidence of a request; the same as `atwu evidence`.

    Args:
        run: folder of a finished run of `unlearn`.
        show_rows: include the forget rows, not only their hashes.
        device: device for measurements.
        say: receives one line of plain text per stage.

    Raises:
        ValueError, FileNotFoundError, OSError: see the message.
    """
    finished = FinishedRequest(run, device=device)
    request, record, fingerprint = finished.request, finished.record, finished.fingerprint
    history, verdict = read_history(finished.folder.history), read_request_verdict(finished.folder.run)
    try:
        asked = ask_in_all_states(finished, say)
    except MissingInputError as error:
        raise ValueError(f"the model cannot be asked again: {error}; restore what is missing.") from None
    facts = asked.answers.select(set=FORGET)
    shown: list[ForgetRow] = []
    if show_rows:
        shown = [ForgetRow(row.question, row.answer) for row in finished.forget_rows]
    return Evidence(
        created_at=utc_now(),
        request=RequestSummary(
            request_note=request.request_note,
            prepared_at=request.prepared_at,
            forget=_public(request.forget),
            rows_measured=len(finished.sets[FORGET]),
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
        verdict=VerdictSummary(verdict.outcome, verdict.reason, verdict.rule, verdict.criteria),
        states=_states(finished.folder.answers("before").select(set=FORGET), facts, asked),
        leaks=facts.stating,
        model_before=Weights(public_text(record["original_model"]["model"]), finished.request.fingerprint, {}),
        model_after=Weights(
            public_text(str(finished.folder.run)),
            fingerprint,
            {file.name: sha256_of(file) for file in sorted(finished.folder.run.glob("*.safetensors"))},
        ),
        earlier=verdict.earlier,
        limitations=tuple(_limitations(asked, rows=len(finished.sets[FORGET]))),
        versions=record["versions"],
        command=public_command(request.command),
    )


def _states(before: FactTable, facts: FactTable, asked: StatesAsked) -> tuple[StateCount, ...]:
    """Return the counts of every state, with those of facts that the model never knew where there are any."""
    unknown = unknown_counts(asked.unknown)
    return tuple(
        replace(state, unknown=unknown[state.name].count()) if state.name in unknown else state
        for state in state_counts(before, facts)
    )


def _public(rows: RowsUsed) -> RowsUsed:
    return replace(rows, source=public_text(rows.source))


def _settings(request: RequestRecord, *, seed: int) -> tuple[Choice, ...]:
    """Return every chosen setting with its reason, then the given ones."""
    # Chosen numbers are computed, with digits that say nothing; given ones are shown as they were given.
    settings = [replace(choice, value=_shown_value(choice.value, ".3g")) for choice in request.choices]
    chosen = {choice.name for choice in settings}
    for name, value in request.key["options"].items():
        if name not in chosen:
            settings.append(Choice(name, public_text(_shown_value(value, "g")), ""))
    return (*settings, Choice("seed", str(seed), ""))


def _shown_value(value: object, number_format: str) -> str:
    if isinstance(value, float):
        return format(value, number_format)
    return str(value)


def _limitations(asked: StatesAsked, *, rows: int) -> Iterator[str]:
    """Yield what the evidence does not show."""
    yield (
        "Unlearning makes the model less likely to say the facts. This is no proof of deletion: no tool can prove that nothing "
        "remains in the weights."
    )
    for missing in asked.missing:
        yield f"Not asked: {missing}."
    yield "Other questions, other attacks and longer training may recover more."
    yield (
        f"{rows} {'fact was' if rows == 1 else 'facts were'} asked for. The 95 % intervals (Clopper-Pearson) are over facts, "
        "as if they were drawn at random; facts about one subject depend on each other."
    )
    yield "Whether an answer states a fact is decided by rules, which make errors in both directions."
    yield (
        "The evidence covers this model only. Data sets, backups, logs, earlier checkpoints, caches and other models trained "
        "on the same data are not touched."
    )
    yield "Rows are listed by hash. Anyone who has a row, or guesses a short row word for word, can find its hash here."
    yield "Times and hashes were written by the machine that did the work; no third party confirms them."
