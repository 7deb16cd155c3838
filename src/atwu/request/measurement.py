"""Measure a model on the sets of a request, answer the questions that its verdict shows, and check what answers still state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from atwu.benchmarks.base import evenly_spaced
from atwu.data.general_rows import common_questions, general_questions, general_text
from atwu.data.key_token_spans import key_token_spans
from atwu.data.schema import Example, Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.evaluate import evaluate
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.evaluation.registry import EvaluateConfig
from atwu.evaluation.result import EvalResult, row_id
from atwu.request.retain_set import self_generated_answers
from atwu.request.verdict import AnswerPair
from atwu.request.verdict_metrics import GENERAL, HOLDOUT_SET, OTHER_PROMPTS, TEXTS

MAX_ROWS = 40
"""Rows of a set that are measured, at most; evenly spaced."""
REQUEST_METRICS = ("memorization", "rouge", "key_tokens", "forms", "fluency")
"""Metrics of a verdict."""
PROMPT_PREFIXES = ("Please answer this question: {}", "I would like to know something. {}")
"""Prompt prefixes for questions of rows without paraphrases."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows are tokenized: as in training."""

    system: str | None
    """System prompt of the questions."""
    max_length: int
    """Longest row in tokens."""


def general_answers(
    generator: TransformersGenerator, forget: Sequence[Example], *, system: str | None
) -> tuple[Example, ...]:
    """Return general questions that name nothing of the forget rows, with the model's answers."""
    questions = (*general_questions("held"), *common_questions("held"))
    return self_generated_answers(generator, questions, forget=forget, system=system, progress="general questions")


def measured_sets(
    forget: Sequence[Example],
    retain: Sequence[Example],
    holdout: Sequence[Example],
    general: Sequence[Example],
    neighbours: Sequence[Example] = (),
) -> dict[str, Sequence[Example]]:
    """Return the sets on which two models are compared."""
    return {
        FORGET: evenly_spaced(forget, MAX_ROWS),
        RETAIN: evenly_spaced(retain, MAX_ROWS),
        OTHER_PROMPTS: evenly_spaced(other_prompts(forget), MAX_ROWS),
        HOLDOUT_SET: evenly_spaced(holdout, MAX_ROWS),
        GENERAL: general,
        NEIGHBOURS: neighbours,
        TEXTS: general_text(),
    }


def check_holdout(holdout: Sequence[Example], forget: Sequence[Example], *, source: str) -> None:
    """Check that holdout rows can be compared with the forget rows.

    Args:
        source: name of the holdout rows in errors.

    Raises:
        ValueError: no holdout row has key tokens, or none is a question although forget rows are.
    """
    with_key_tokens, others = (
        [row for row in evenly_spaced(rows, MAX_ROWS) if key_token_spans(row)] for rows in (holdout, forget)
    )
    questions = any(row.messages for row in others)
    if not any(row.messages or not questions for row in with_key_tokens):
        kind = "a question with words in its answer" if questions else "a row with words in it"
        raise ValueError(
            f"{source}: no holdout row is {kind}, so the forget rows cannot be compared with them; give --holdout rows of "
            "the same kind as the forget rows."
        )


def other_prompts(rows: Sequence[Example]) -> Sequence[Example]:
    """Return each question with other prompts, its own paraphrases or `PROMPT_PREFIXES` before it, and the same key tokens.

    The prompts of one question depend on each other: unless the rows have several subjects, each question counts as one.
    """
    result = []
    several = len({row.subject for row in rows}) > 1
    for row in rows:
        if row.messages:
            spans = key_token_spans(row)
            for prompt in row.paraphrases[:2] or tuple(each.format(row.question) for each in PROMPT_PREFIXES):
                turns = (*row.messages[:-1], Message("user", prompt))
                subject = (row.subject if several else None) or row_id(row)
                result.append(replace(row, messages=turns, forget_spans=spans, subject=subject))
    return tuple(result)


def measure_model(
    model: Any,
    tokenizer: Any,
    sets: Mapping[str, Sequence[Example]],
    reading: Reading,
    *,
    name: str,
    metrics: Sequence[str] = REQUEST_METRICS,
    settings: Mapping[str, Any] | None = None,
) -> EvalResult:
    """Measure a model on some of these sets.

    Args:
        name: name of the model in the result.
        settings: further settings of the evaluation.
    """
    further = {split: rows for split, rows in sets.items() if split not in (FORGET, RETAIN) and rows}
    return evaluate(
        model,
        tokenizer,
        forget=sets.get(FORGET, ()),
        retain=sets.get(RETAIN, ()),
        extra_retain=further,
        metrics=metrics,
        config=EvaluateConfig(**{**(settings or {}), **asdict(reading)}),
        store=GenerationStore(),
        name=name,
    )


ANSWERS_STORED = {FORGET: 6, NEIGHBOURS: 2, GENERAL: 2}
"""Set -> number of questions whose answers a verdict shows."""


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
        "other languages, questions that do not name the subject, adversarial prompts",
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
