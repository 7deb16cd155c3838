"""Earlier requests on the same model: does a later one bring back what they removed?

The record of a request names the requests before it. A request on the model that another one left reads this chain, keeps
the earlier forget rows out of what it retains, and asks for their facts again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atwu.benchmarks.base import evenly_spaced
from atwu.benchmarks.sources import load_rows
from atwu.data.render import opening_of_thoughts
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.askings import CHAINED
from atwu.evaluation.facts.fact_table import AS_SAVED, FactTable, answerer, ask_facts
from atwu.request.goal_evaluations import read_history
from atwu.request.measurement import MAX_ROWS, fact_askings
from atwu.request.regression_check import CAME_BACK, STILL_GONE, STILL_KNOWN, Baseline, RegressionCheck
from atwu.request.request_folder import EarlierRequest, RequestFolder
from atwu.request.row_facts import with_facts
from atwu.request.verdict import clearly_more, facts_forgotten
from atwu.training.run_folder import VERDICT_NAME


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """An earlier request with its forget rows."""

    request: EarlierRequest
    rows: Sequence[Example]
    missing: str = ""
    """Why there are no rows: they may have been deleted, as the model should have forgotten them."""


def earlier_requests(model: str) -> tuple[EarlierRequest, ...]:
    """Return the requests that left a model, the first one first; none for a model that no request left."""
    run = Path(model).expanduser()
    folder = RequestFolder(run)
    if folder.key() is None or not (run / VERDICT_NAME).is_file():
        return ()
    record = folder.request()
    before, after = (asked_again(folder.answers(name)) for name in ("before", "after"))
    after = after.select(states=(AS_SAVED,)).like(before)
    increase = read_history(folder.history).retain_loss_increase or 0.0
    last = EarlierRequest(
        run=str(run.absolute()),
        # The folder with rows that the model said may have been moved since then.
        forget=replace(record.forget, source=folder.forget_source(record.forget.source)),
        facts=record.facts,
        system=record.system,
        baseline=Baseline(before.count(), after.count(), facts_forgotten(after)),
        retain_loss_increase=None if math.isnan(increase) else increase,
    )
    return (*record.earlier, last)


def asked_again(answers: FactTable) -> FactTable:
    """Return the records of questions that a later request asks again: it has the forget rows, but no chained questions."""
    about_facts = answers.select(set=FORGET)
    return FactTable(tuple(record for record in about_facts.records if record.asking != CHAINED))


def read_rows(request: EarlierRequest) -> ReadRequest:
    """Read the forget rows of an earlier request, with their facts."""
    source = request.forget.source
    try:
        rows = load_rows(source).rows
    except (OSError, ValueError) as error:
        return ReadRequest(request, (), f"its rows cannot be read: {error}")
    if fingerprint(rows) != request.forget.fingerprint:
        return ReadRequest(request, (), f"{source} has other rows than then")
    return ReadRequest(request, with_facts(rows, request.facts))


def recheck_requests(model: Any, tokenizer: Any, earlier: Sequence[ReadRequest]) -> tuple[RegressionCheck, ...]:
    """Ask for the facts of earlier requests again, of those whose rows are there.

    Args:
        earlier: all earlier requests in order.
    """
    generator = TransformersGenerator(model, tokenizer)
    checks: list[RegressionCheck] = []
    for number, past in enumerate(earlier, start=1):
        if past.missing:
            continue
        request = past.request
        thoughts = opening_of_thoughts(tokenizer)
        answers = answerer(generator, system=request.system, progress=f"request {number}")
        said = ask_facts(answers, fact_askings(evenly_spaced(past.rows, MAX_ROWS), thoughts=thoughts))
        outcome = recheck_outcome(request.baseline, said)
        checks.append(RegressionCheck(number, outcome, request.baseline, said.count()))
    return tuple(checks)


def recheck_outcome(baseline: Baseline, answers: FactTable) -> str:
    """Return the outcome of a check: came back, if the rule held and does not any more, or more answers state a fact."""
    if facts_forgotten(answers):
        return STILL_GONE
    risen = clearly_more(answers.count(), baseline.after)
    return CAME_BACK if baseline.forgotten or risen else STILL_KNOWN


def not_asked(earlier: Sequence[ReadRequest]) -> tuple[str, ...]:
    """Return which earlier requests cannot be asked again, and why."""
    return tuple(
        f"request {number}, an earlier one: {past.missing}" for number, past in enumerate(earlier, 1) if past.missing
    )


def total_cost(earlier: Sequence[ReadRequest], increase: float | None) -> tuple[str, ...]:
    """Return a sentence on what all requests together cost; none for a first request.

    Args:
        increase: increase of the retain loss by the last request, in nats/token; None if it is not a number.
    """
    increases = [*(past.request.retain_loss_increase for past in earlier), increase]
    known = [value for value in increases if value is not None and math.isfinite(value)]
    if not earlier or len(known) < len(increases):
        return ()
    return (f"Over all {len(increases)} requests on this model the retain loss rose by {sum(known):.3f} nats/token.",)
