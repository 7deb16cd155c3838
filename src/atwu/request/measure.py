"""What is measured before and after: the rows, the same in other words, rows no model saw, and what should stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from atwu.benchmarks.general import common_questions, general_questions, general_texts
from atwu.benchmarks.spread import spread
from atwu.data.schema import Example, Message
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.config import EvaluateConfig
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.metrics.telling import telling_spans
from atwu.evaluation.result import EvalResult
from atwu.evaluation.run import evaluate
from atwu.request.retain import own_answers
from atwu.request.verdict import HELD, REWORDED, TEXTS, UNSEEN

MEASURED = 40
"""Rows of a set that are measured, evenly spaced."""
METRICS = ("memorization", "rouge", "telling")
"""What a verdict is made of."""
WORDINGS = ("Please answer this question: {}", "I would like to know something. {}")
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
    unseen: Sequence[Example],
    *,
    system: str | None,
) -> dict[str, Sequence[Example]]:
    """The rows that two models are compared on, by set; what the first of the two says to general questions is to stay."""
    questions = (*general_questions("held"), *common_questions("held"))
    general = own_answers(model, tokenizer, questions, forget=forget, system=system, progress="general questions")
    return sets_of(forget, retain, unseen, general)


def sets_of(
    forget: Sequence[Example], retain: Sequence[Example], unseen: Sequence[Example], general: Sequence[Example]
) -> dict[str, Sequence[Example]]:
    """The same with the first model's answers to general questions at hand."""
    return {
        FORGET: spread(forget, MEASURED),
        RETAIN: spread(retain, MEASURED),
        REWORDED: spread(reworded(forget), MEASURED),
        UNSEEN: spread(unseen, MEASURED),
        HELD: general,
        TEXTS: general_texts(),
    }


def check_unseen(unseen: Sequence[Example], forget: Sequence[Example], *, source: str) -> None:
    """Refuse rows that no model saw with which rows to forget cannot be compared.

    Args:
        source: what the error calls them.

    Raises:
        ValueError: none has words to compare, or none is a question where rows to forget are.
    """
    telling, others = ([row for row in spread(rows, MEASURED) if telling_spans(row)] for rows in (unseen, forget))
    asked = any(row.messages for row in others)
    if not any(row.messages or not asked for row in telling):
        kind = "a question with words in its answer" if asked else "a row with words in it"
        raise ValueError(
            f"{source}: of the rows that no model saw none is {kind}, so the rows to forget cannot be compared with them; "
            "give --unseen rows of the same kind as those to forget."
        )


def reworded(rows: Sequence[Example]) -> Sequence[Example]:
    """Every question in other words: the row's own paraphrases, or `WORDINGS` around it."""
    found = []
    for row in rows:
        if row.messages:
            for wording in row.paraphrases[:2] or tuple(each.format(row.question) for each in WORDINGS):
                found.append(replace(row, messages=(*row.messages[:-1], Message("user", wording)), forget_spans=None))
    return tuple(found)


def measure(
    model: Any,
    tokenizer: Any,
    sets: Mapping[str, Sequence[Example]],
    reading: Reading,
    *,
    name: str,
    metrics: Sequence[str] = METRICS,
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
        kept=further,
        metrics=metrics,
        config=EvaluateConfig(**{**(settings or {}), **asdict(reading)}),
        store=GenerationStore(),
        name=name,
    )
