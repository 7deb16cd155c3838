"""Questions to show with a verdict, answered before and after, and what the verdict does not cover."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from atwu.benchmarks.subsample import evenly_spaced
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET
from atwu.evaluation.result import EvalResult
from atwu.request.verdict import GENERAL, AnswerPair

ANSWERS_STORED = {FORGET: 3, GENERAL: 1}
"""Set -> number of questions whose answers are stored."""


def untested(rows: Sequence[Example], *, quantized: bool = False) -> tuple[str, ...]:
    """Return what a verdict on these forget rows does not cover.

    Args:
        rows: the forget rows.
        quantized: the measured model has quantized weights.
    """
    questions = [row for row in rows if row.messages]
    without = sum(not row.paraphrases for row in questions)
    items = []
    if not questions:
        items.append("other prompts: no forget row is a question")
    elif without:
        which = "the rows have none" if without == len(questions) else f"{without} of {len(questions)} rows have none"
        items.append(f"paraphrases: {which} (atwu paraphrase writes them)")
    return (
        *items,
        "other languages, indirect questions, adversarial prompts",
        "sampling: answers are greedy",
        *([] if quantized else ["quantization: weights are as trained"]),
        "relearning: no training after unlearning, no in-context examples",
    )


def answers_before(before: EvalResult, rows: Mapping[str, Sequence[Example]]) -> tuple[AnswerPair, ...]:
    """Return the questions to show with the answers of the original model."""
    return tuple(
        AnswerPair(row.question, row.answer, answer, "")
        for split in ANSWERS_STORED
        for row, answer in _stored(rows.get(split, ()), before, split)
    )


def answers_after(
    pairs: Sequence[AnswerPair], after: EvalResult, rows: Mapping[str, Sequence[Example]]
) -> tuple[AnswerPair, ...]:
    """Add the answers of the unlearned model to the same questions."""
    answers = [answer for split in ANSWERS_STORED for _, answer in _stored(rows.get(split, ()), after, split)]
    return tuple(dataclasses.replace(each, after=answer) for each, answer in zip(pairs, answers, strict=True))


def _stored(rows: Sequence[Example], result: EvalResult, split: str) -> list[tuple[Example, str]]:
    """Return some rows of a set, evenly spaced, with a model's answers."""
    answers = result.rows[split].texts.get("answer", ()) if split in result.rows else ()
    return [(rows[index], answers[index]) for index in evenly_spaced(range(len(answers)), ANSWERS_STORED[split])]
