"""Whether an exported model has forgotten what the run had: in words, from both measured on the same rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from atwu.evaluation.aggregate import paired_differences
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.result import EvalResult
from atwu.request.verdict import (
    DECISIVE_METRICS,
    GENERAL,
    MIN_CHANGE,
    OTHER_PROMPTS,
    VERDICT_NAME,
    AnswerPair,
    RequestVerdict,
    holdout_limit,
    read_request_verdict,
    verdict_metrics,
)

SAME = "as before export"
WITHIN = "a little comes back"
BACK = "what was forgotten comes back"
EXPORT_DAMAGED = "damaged by the export"
GOOD = (SAME, WITHIN)
_ADVICE = {
    BACK: "export with more bits, or unlearn for longer (raise --max-retain-increase)",
    EXPORT_DAMAGED: "export with more bits (8bit, or gguf with Q8_0)",
}

_WHERE = {FORGET: "the rows to forget", OTHER_PROMPTS: "these reworded"}


def run_limits(run: Path, before: EvalResult) -> dict[str, float]:
    """What a model knows of rows that it never saw, by measure: as the run's verdict has it, else of the run's model."""
    known = read_request_verdict(run).limits if (run / VERDICT_NAME).is_file() else {}
    found = {name: known.get(name, holdout_limit(before, name)) for name in DECISIVE_METRICS}
    return {name: limit for name, limit in found.items() if limit is not None}


def lost(before: EvalResult, after: EvalResult) -> float:
    """Most that the loss of rows that should stay rose by, in nats per token; the mean over rows, of the worst set."""
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
    limit: float,
    answers: tuple[AnswerPair, ...],
    told: str = "",
    then: tuple[str, ...] = (),
) -> RequestVerdict:
    """The verdict on an export.

    Args:
        before: the run's model.
        after: the exported one, measured on the same rows.
        limits: measure -> what a model knows of rows that it never saw (`run_limits`).
        limit: most that the loss of rows that should stay may rise, in nats per token.
        answers: questions to show.
        told: what to add to the reason.
        then: commands that make sense next.
    """
    change = paired_differences(after, before)
    back: list[str] = []
    little: list[str] = []
    perhaps: list[str] = []
    still: list[str] = []
    for split, where in _WHERE.items():
        for name, measure in DECISIVE_METRICS.items():
            if (split, name) not in change or name not in limits:
                continue
            first, last = (result.sets[split][name].value or 0.0 for result in (before, after))
            interval = change[split, name].interval()
            surely = interval is None or interval[0] > 0  # of a single subject there is no interval
            line = f"{measure} rose from {first:.2g} to {last:.2g} on {where} (rows no model saw: {limits[name]:.2g})"
            if first > limits[name]:
                still.append(measure)
            if last - first >= MIN_CHANGE:
                over = last > limits[name] and (surely or first <= limits[name])
                (back if over else little if surely else perhaps).append(line)
    cost = lost(before, after)
    word, why = _outcome(back, little, perhaps, damaged=not cost <= limit)
    if still and not back:
        why += " What the run itself had left (" + ", ".join(dict.fromkeys(still)) + ") is still there."
    why += f" What should stay lost {max(cost, 0):.3f} nats per token more (limit {limit:g})."
    advice = () if word in GOOD else (_ADVICE[word],)
    return RequestVerdict(word, f"{why}{told}", verdict_metrics(before, after), answers, (*advice, *then), limits)


def _outcome(back: list[str], little: list[str], perhaps: list[str], *, damaged: bool) -> tuple[str, str]:
    """The word, and why."""
    if back:
        return BACK, f"After export {_listed(back)}."
    if damaged:
        return EXPORT_DAMAGED, "The rows stay forgotten, but what should stay does not."
    if little:
        return WITHIN, f"After export {_listed(little)}."
    return SAME, "The rows are no better known than before" + (f": {_listed(perhaps)}, by chance." if perhaps else ".")


def _listed(lines: list[str]) -> str:
    return lines[0] + (f" (and {len(lines) - 1} more rose)" if len(lines) > 1 else "")


def _loss(probability: float | None) -> float:
    return -math.log(max(probability or 0.0, 1e-12))
