"""Apply a request to the model that the last request in a ledger left, and measure all earlier requests again.

Does a later request bring back what an earlier one removed? Each may raise the loss on retained data up to a limit, and
several add up; therefore the original model's answers to general questions are measured again, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from atwu.benchmarks.base import evenly_spaced
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import write_rows
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.fact_table import AS_SAVED, answerer, ask_facts
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.asked_rows import ask_for_rows, asked_source
from atwu.request.auto_settings import with_method
from atwu.request.ledger import (
    Baseline,
    Entry,
    Ledger,
    ModelUsed,
    RegressionCheck,
    UtilityDrift,
    recheck_outcome,
    rows_file,
)
from atwu.request.measurement import LOSS_METRICS, MAX_ROWS, Reading, fact_askings, measure_model
from atwu.request.preparation import after_loading
from atwu.request.request_folder import RequestFolder, RowsUsed, utc_now
from atwu.request.row_facts import RowFact, with_facts
from atwu.request.screen import next_lines, wrap_text
from atwu.request.training_goals import GENERAL, metric_value
from atwu.request.unlearn import run_request
from atwu.request.unlearning_request import LedgerContext, UnlearningRequest, UnlearnResult
from atwu.request.verdict import FORGOTTEN, NOTHING, facts_forgotten
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.progress import Say, logged, silent
from atwu.training.sharding import broadcast_from_main


@dataclass(frozen=True, slots=True)
class SequentialResult:
    entry: Entry
    outcome: UnlearnResult | None
    """None if the ledger already had this request."""

    @property
    def good(self) -> bool:
        """Whether the request is fulfilled and no earlier one came back."""
        return self.entry.outcome == FORGOTTEN and not self.entry.came_back

    def summary(self) -> str:
        """Return the verdict and the checks of earlier requests as plain text, 80 columns wide."""
        entry = self.entry
        if self.outcome is None:
            out = [f"VERDICT: {entry.outcome.upper()}", *wrap_text(entry.reason)]
        else:
            out = [self.outcome.summary()]
        if entry.regression_checks:
            out += ["", "EARLIER REQUESTS, ASKED AGAIN"]
            for check in entry.regression_checks:
                out += wrap_text(f"request {check.number} {check.summary}", rest="  ")
            if entry.utility_drift is not None:
                out += wrap_text(entry.utility_drift.text())
        steps = [f"repeat request {number}, which came back; its rows are in the ledger" for number in entry.came_back]
        return "\n".join([*out, *next_lines(steps)])


def unlearn_in_ledger(
    ledger: str | Path,
    forget: str | None,
    *,
    about: str | None = None,
    kind: str | None = None,
    model: str | None = None,
    loading: ModelLoadArgs | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
    say: Say = logged,
    **options: Any,
) -> SequentialResult:
    """Apply a request to the model that the last one in a ledger left, and measure all earlier ones again.

    Args:
        ledger: folder of the ledger; a new or empty one is started.
        forget, about, kind: as for `unlearn`.
        model: the original model, needed for the first request. Later requests start from the model of the last one.
        output: folder for the model; by default one in the ledger.
        say: receives one line of plain text per stage, in the first process.
        options: further arguments of `unlearn`. Retain rows that an earlier request removed are an error; `auto` leaves them
            out.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, OSError: see the message; nothing was changed.
    """
    config = UnlearnConfig(**with_method(options.get("options", {})))
    first, book = config.process_index == 0, Ledger(ledger)
    say = say if first else silent
    with book.alone() if first else contextlib.nullcontext():
        entries = broadcast_from_main(config, book.entries)
        number, last = len(entries) + 1, entries[-1] if entries else None
        if not model:
            if last is None:
                raise ValueError(f"the first request of a ledger ({ledger}) needs a model; give --model.")
            model = book.model(last.model_after)
        book.general_rows(recorded=any(entry.utility_drift is not None for entry in entries))
        source = ModelSource(model=model, **asdict(loading or ModelLoadArgs()))
        folder = Path(output) if output is not None else book.folder / "models" / f"{number:04d}"
        asked, to_ask = None, asked_source(forget, about=about, kind=kind)
        if to_ask is not None:
            asked = broadcast_from_main(
                config, lambda: ask_for_rows(to_ask, source, config, folder, overwrite=overwrite, say=say)
            )
            loaded = asked.forget
        else:
            loaded = load_rows(str(forget))
        rows = loaded.rows
        request = UnlearningRequest(
            **options,
            source=source,
            forget_set=replace(loaded, source=str(rows_file(book.folder, loaded.fingerprint))),
            asked=asked,
            output=folder,
            ledger_context=LedgerContext(
                ledger=str(ledger),
                number=number,
                earlier_rows=tuple(row for entry in entries for row in book.rows(entry)),
                model_fingerprint=None if last is None else last.model_after.fingerprint,
                in_ledger_folder=output is None,
            ),
        )
        key = request.key(config)
        same = last is not None and {**last.key, "model": None} == {**key, "model": None}
        if last is not None and same and last.outcome in (FORGOTTEN, NOTHING):
            say(f"request {last.number} of {ledger} is this request, and it is finished")
            return SequentialResult(last, None)
        say(f"request {number} of {ledger}" + (f", on {request.source.model}" if entries else ""))
        outcome = run_request(request, overwrite=overwrite, begin=lambda: book.keep_rows(rows), say=say)
        return SequentialResult(
            broadcast_from_main(config, lambda: _record(book, entries, request, key, outcome, config, say)), outcome
        )


def _reading_of(key: Mapping[str, Any]) -> Reading:
    """Return how a recorded request tokenized rows."""
    given = key["options"]
    return Reading(given.get("system"), given.get("max_length", UnlearnConfig.max_length))


def _record(
    book: Ledger,
    entries: tuple[Entry, ...],
    request: UnlearningRequest,
    key: Mapping[str, Any],
    outcome: UnlearnResult,
    config: UnlearnConfig,
    say: Say,
) -> Entry:
    """Measure the earlier requests again, and add this one to the ledger."""
    assert request.ledger_context is not None
    before = ModelUsed(book.name_of(str(request.source.model)), outcome.before.fingerprint)
    model, made = before, utc_now()
    checks: tuple[RegressionCheck, ...] = ()
    facts: tuple[RowFact, ...] = ()
    drift = next((entry.utility_drift for entry in entries if entry.utility_drift is not None), None)
    if outcome.run is not None and outcome.after is not None:
        model = ModelUsed(book.name_of(outcome.run.output), outcome.after.fingerprint)
        folder = RequestFolder(outcome.run.output)
        prepared = folder.request()
        made, facts = prepared.prepared_at, prepared.facts
        if drift is None:
            write_rows(book.general, folder.rows("general") or ())
            first, now = (metric_value(each, GENERAL, "probability") for each in (outcome.before, outcome.after))
            drift = None if first is None or now is None else UtilityDrift(first, now)
        if entries:
            say(f"measuring {len(entries)} earlier request{'s' * (len(entries) > 1)} again")
            network, tokenizer = open_model(
                str(outcome.run.output), after_loading(request.source), device=config.device
            )
            started = next((entry.key for entry in entries if entry.utility_drift is not None), key)
            general = book.general_rows(recorded=drift is not None)
            earlier = [(entry, book.rows(entry)) for entry in entries]
            checks = recheck_requests(network, tokenizer, earlier)
            current = general_probability(network, tokenizer, general, _reading_of(started))
            if drift is not None and current is not None:
                drift = UtilityDrift(drift.original, current)
    entry = Entry(
        number=request.ledger_context.number,
        prepared_at=made,
        finished_at=utc_now(),
        request_note=request.request_note,
        command=request.command(),
        key=key,
        forget_rows=RowsUsed.of(f"rows/{Path(request.forget).name}", request.rows, each=True),
        model_before=before,
        model_after=model,
        outcome=outcome.verdict.outcome,
        reason=outcome.verdict.reason,
        facts=facts,
        baseline=baseline_of(outcome),
        regression_checks=checks,
        utility_drift=drift,
    )
    book.add(entry)
    return entry


def baseline_of(outcome: UnlearnResult) -> Baseline:
    """Return what later requests are compared with."""
    before = outcome.answers_before.select(set=FORGET)
    after = before
    if outcome.answers_after is not None:
        after = outcome.answers_after.select(set=FORGET, states=(AS_SAVED,)).like(before)
    return Baseline(before.count(), after.count(), facts_forgotten(after))


def recheck_requests(
    model: Any, tokenizer: Any, earlier: Sequence[tuple[Entry, Sequence[Example]]]
) -> tuple[RegressionCheck, ...]:
    """Ask for the facts of earlier requests again.

    Args:
        earlier: the requests with their forget rows.
    """
    generator = TransformersGenerator(model, tokenizer)
    checks: list[RegressionCheck] = []
    for entry, rows in earlier:
        askings = fact_askings(evenly_spaced(with_facts(rows, entry.facts), MAX_ROWS))
        answers = answerer(generator, system=_reading_of(entry.key).system, progress=f"request {entry.number}")
        said = ask_facts(answers, askings)
        checks.append(
            RegressionCheck(entry.number, recheck_outcome(entry.baseline, said), entry.baseline, said.count())
        )
    return tuple(checks)


def general_probability(model: Any, tokenizer: Any, general: Sequence[Example], reading: Reading) -> float | None:
    """Return the probability of the original answers to general questions; None without any."""
    if not general:
        return None
    kept = measure_model(model, tokenizer, {GENERAL: general}, reading, name="now", metrics=LOSS_METRICS)
    return metric_value(kept, GENERAL, "probability")
