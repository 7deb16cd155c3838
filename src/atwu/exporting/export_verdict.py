"""The verdict on an export: does the exported model know forgotten rows that the model of the run does not?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from atwu.evaluation.aggregate import paired_differences
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.result import EvalResult
from atwu.request.verdict import AnswerPair, RequestVerdict, read_request_verdict, retain_loss_sentence
from atwu.request.verdict_metrics import (
    DECISIVE_METRICS,
    GENERAL,
    MIN_CHANGE,
    OTHER_PROMPTS,
    holdout_limit,
    retain_loss_metric,
    verdict_metrics,
)
from atwu.training.run_folder import VERDICT_NAME

SAME = "as before export"
WITHIN = "a little comes back"
BACK = "what was forgotten comes back"
EXPORT_DAMAGED = "damaged by the export"
GOOD = (SAME, WITHIN)
_ADVICE = {
    BACK: "export with more bits, or unlearn further (raise --max-retain-increase)",
    EXPORT_DAMAGED: "export with more bits (8bit, or gguf with Q8_0)",
}

_SET_TITLES = {FORGET: "the forget set", OTHER_PROMPTS: "the forget set with other prompts"}


def run_limits(run: Path, before: EvalResult) -> dict[str, float]:
    """Return the limits from the verdict of the run, or else from its model on holdout rows."""
    known = read_request_verdict(run).holdout_limits if (run / VERDICT_NAME).is_file() else {}
    found = {name: known.get(name, holdout_limit(before, name)) for name in DECISIVE_METRICS}
    return {name: limit for name, limit in found.items() if limit is not None}


def retain_loss_increase(before: EvalResult, after: EvalResult) -> float:
    """Return the increase of the loss on retained data: mean over rows, largest over sets, in nats/token."""
    rises = [0.0]
    for split in (GENERAL, RETAIN):
        pair = [result.rows[split].metrics["probability"] for result in (before, after) if split in result.rows]
        if len(pair) == 2:
            rises.append(float(np.mean([_loss(last) - _loss(first) for first, last in zip(*pair, strict=True)])))
    return max(rises)


def judge_export(
    before: EvalResult,
    after: EvalResult,
    *,
    limits: Mapping[str, float],
    max_retain_increase: float,
    answers: tuple[AnswerPair, ...],
    weight_change: str = "",
    next_commands: tuple[str, ...] = (),
    not_tested: tuple[str, ...] = (),
) -> RequestVerdict:
    """Decide the verdict on an export.

    Args:
        after: the exported model, measured on the same rows.
        limits: metric -> limit on forget rows (`run_limits`).
    """
    change = paired_differences(after, before)
    recovered: list[str] = []
    small: list[str] = []
    insignificant: list[str] = []
    still: list[str] = []
    for split, where in _SET_TITLES.items():
        for name, title in DECISIVE_METRICS.items():
            if (split, name) not in change or name not in limits:
                continue
            first, last = (result.sets[split][name].value or 0.0 for result in (before, after))
            interval = change[split, name].interval()
            significant = interval is None or interval[0] > 0  # a single subject has no interval
            line = f"{title} rose from {first:.2g} to {last:.2g} on {where} (limit {limits[name]:.2g})"
            if first > limits[name]:
                still.append(title)
            if last - first >= MIN_CHANGE:
                over = last > limits[name] and (significant or first <= limits[name])
                (recovered if over else small if significant else insignificant).append(line)
    increase = retain_loss_increase(before, after)
    outcome, reason = _outcome(recovered, small, insignificant, damaged=not increase <= max_retain_increase)
    if still and not recovered:
        reason += f" The model of the run was above the limit already ({', '.join(dict.fromkeys(still))})."
    reason = " ".join(filter(None, [reason, retain_loss_sentence(increase, max_retain_increase), weight_change]))
    metrics = (*verdict_metrics(before, after, limits), retain_loss_metric(increase, max_retain_increase))
    advice = () if outcome in GOOD else (_ADVICE[outcome],)
    return RequestVerdict(outcome, reason, metrics, answers, (*advice, *next_commands), limits, not_tested)


def _outcome(recovered: list[str], small: list[str], insignificant: list[str], *, damaged: bool) -> tuple[str, str]:
    if recovered:
        return BACK, f"After export, {_listed(recovered)}."
    if damaged:
        return EXPORT_DAMAGED, "The forget rows stay forgotten, but retained data was damaged."
    if small:
        return WITHIN, f"After export, {_listed(small)}."
    note = f" A change is not significant: {_listed(insignificant)}." if insignificant else ""
    return SAME, f"The forget rows are no better known than before.{note}"


def _listed(lines: list[str]) -> str:
    return lines[0] + (f" (and {len(lines) - 1} more rose)" if len(lines) > 1 else "")


def _loss(probability: float | None) -> float:
    return -math.log(max(probability or 0.0, 1e-12))
