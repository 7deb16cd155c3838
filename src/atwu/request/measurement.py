"""What is measured before and after: the rows, the same in other words, rows no model saw, and what should stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from atwu.benchmarks.general_rows import common_questions, general_questions, general_text
from atwu.benchmarks.subsample import evenly_spaced
from atwu.data.schema import Example, Message
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.evaluate import evaluate
from atwu.evaluation.evaluate_config import EvaluateConfig
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.metrics.key_tokens import key_token_spans
from atwu.evaluation.result import EvalResult
from atwu.request.retain_set import self_generated_answers
from atwu.request.verdict import GENERAL, HOLDOUT_SET, OTHER_PROMPTS, TEXTS

MAX_ROWS = 40
"""Rows of a set that are measured, evenly spaced."""
REQUEST_METRICS = ("memorization", "rouge", "key_tokens")
"""What a verdict is made of."""
PROMPT_PREFIXES = ("Please answer this question: {}", "I would like to know something. {}")
"""Around a question, where a row brings no paraphrases of its own."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows are read: as the model was trained on them."""

    system: str | None
    """System turn put before questions."""
    max_length: int
    """Longest row in tokens."""


def measured_sets(
    model: Any,
    tokenizer: Any,
    forget: Sequence[Example],
    retain: Sequence[Example],
    holdout: Sequence[Example],
    *,
    system: str | None,
) -> dict[str, Sequence[Example]]:
    """The rows that two models are compared on, by set; what the first of the two says to general questions is to stay."""
    questions = (*general_questions("held"), *common_questions("held"))
    general = self_generated_answers(
        model, tokenizer, questions, forget=forget, system=system, progress="general questions"
    )
    return sets_of(forget, retain, holdout, general)


def sets_of(
    forget: Sequence[Example], retain: Sequence[Example], holdout: Sequence[Example], general: Sequence[Example]
) -> dict[str, Sequence[Example]]:
    """The same with the first model's answers to general questions at hand."""
    return {
        FORGET: evenly_spaced(forget, MAX_ROWS),
        RETAIN: evenly_spaced(retain, MAX_ROWS),
        OTHER_PROMPTS: evenly_spaced(other_prompts(forget), MAX_ROWS),
        HOLDOUT_SET: evenly_spaced(holdout, MAX_ROWS),
        GENERAL: general,
        TEXTS: general_text(),
    }


def check_holdout(holdout: Sequence[Example], forget: Sequence[Example], *, source: str) -> None:
    """Refuse rows that no model saw with which rows to forget cannot be compared.

    Args:
        source: what the error calls them.

    Raises:
        ValueError: none has words to compare, or none is a question where rows to forget are.
    """
    telling, others = (
        [row for row in evenly_spaced(rows, MAX_ROWS) if key_token_spans(row)] for rows in (holdout, forget)
    )
    asked = any(row.messages for row in others)
    if not any(row.messages or not asked for row in telling):
        kind = "a question with words in its answer" if asked else "a row with words in it"
        raise ValueError(
            f"{source}: of the rows that no model saw none is {kind}, so the rows to forget cannot be compared with them; "
            "give --holdout rows of the same kind as those to forget."
        )


def other_prompts(rows: Sequence[Example]) -> Sequence[Example]:
    """Every question in other words: the row's own paraphrases, or `PROMPT_PREFIXES` around it."""
    found = []
    for row in rows:
        if row.messages:
            for wording in row.paraphrases[:2] or tuple(each.format(row.question) for each in PROMPT_PREFIXES):
                found.append(replace(row, messages=(*row.messages[:-1], Message("user", wording)), forget_spans=None))
    return tuple(found)


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
    """Measure a model on such sets, or some of them.

    Args:
        name: how the result calls the model.
        settings: further ones of the evaluation.
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
