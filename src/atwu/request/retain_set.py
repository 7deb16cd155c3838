"""Rows to keep for whoever has none: neighbours out of a corpus, and the model's own answers to general questions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atwu.benchmarks.general_rows import common_questions, general_questions
from atwu.data.row_parsing import is_text
from atwu.data.schema import Example, Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, GenerationStore, Prompt, generate_all
from atwu.request.neighbour_rows import Neighbours, names, names_any, neighbour_rows

GENERATED_TOKENS = 48
"""Where an answer of its own is cut that a model is asked to keep beside itself (`--retain-loss kl`), which tells it no end."""
FACT_TOKENS = 20
"""The same for common knowledge, which the first sentence says."""
WHOLE_TOKENS = 256
"""Longest answer that is written as a row: rows teach where answers end, so only what ends by itself will do."""
LEFT_OUT = "endless, empty, or about a subject to forget"
"""Why general questions give no row."""
SHORT = 120
"""Characters, the same in all scripts: where half of the answers to keep have no more, they teach that answers are so short."""


def short_answers(rows: Sequence[Example]) -> str | None:
    """What rows to keep teach besides themselves where most of them are single sentences, and the remedy; None otherwise."""
    length = statistics.median_low(len(row.answer) for row in rows)
    if length > SHORT:
        return None
    return (
        f"rows to keep are short (half have at most {length} characters), and the model may learn to answer anything so "
        "briefly; --retain 'FILE + GENERAL' --retain-loss kl keeps its own of all lengths, which atwu retain build writes"
    )


@dataclass(frozen=True, slots=True)
class RetainSet:
    """Rows to keep, and where they come from."""

    rows: tuple[Example, ...]
    found: Neighbours | None
    """What a corpus gave."""
    general: int
    """The model's own answers among them."""

    def table(self) -> list[tuple[str, int]]:
        """What is in it and what was left out: name and number of rows."""
        lines = []
        if self.found is not None:
            by = (
                f" ({', '.join(self.found.by[:3])}{', ...' if len(self.found.by) > 3 else ''})" if self.found.by else ""
            )
            lines = [
                ("neighbours from the corpus, close in topic", len(self.found.rows)),
                (f"  left out: they name a subject to forget{by}", self.found.about),
                ("  left out: they repeat a row to forget or another one", self.found.repeated),
            ]
        return [
            *lines,
            ("the model's own answers to general questions", self.general),
            (f"  left out: {LEFT_OUT}", sum(len(questions) for _, questions, _ in _asked(whole=True)) - self.general),
            ("rows to keep", len(self.rows)),
        ]


def build_retain(
    model: Any,
    tokenizer: Any,
    forget: Sequence[Example],
    *,
    corpus: Sequence[Example] = (),
    count: int = 200,
    whole: bool = True,
    system: str | None = None,
) -> RetainSet:
    """Build rows to keep.

    Args:
        corpus: rows that neighbours are taken from; their own answers are what is kept.
        count: most neighbours.
        whole: leave out answers of its own that do not end, instead of cutting them; cut ones are only for a retain loss that
            compares with the model itself.

    Returns:
        Neighbours first, then the shipped general questions as the model answers them, then those of common knowledge.

    Raises:
        ValueError: there is no row.
    """
    found = neighbour_rows(forget, corpus, count) if corpus else None
    own = [
        row
        for title, questions, longest in _asked(whole=whole)
        for row in self_generated_answers(
            model,
            tokenizer,
            questions,
            forget=forget,
            whole=whole,
            longest=longest,
            system=system,
            progress=title,
        )
    ]
    rows = (*(found.rows if found else ()), *own)
    if not rows:
        raise ValueError(
            f"general questions give no row to keep ({LEFT_OUT}); give rows of your own: --retain or --corpus."
        )
    return RetainSet(rows, found, len(own))


def _asked(*, whole: bool) -> tuple[tuple[str, tuple[str, ...], int], ...]:
    """A name, the questions, and the most tokens of an answer: where it is cut, or, if it has to be whole, given up."""
    longest = (WHOLE_TOKENS, GENERATED_TOKENS) if whole else (GENERATED_TOKENS, FACT_TOKENS)
    return (
        ("general questions", general_questions("kept"), longest[0]),
        ("common knowledge", common_questions("kept"), longest[1]),
    )


def self_generated_answers(
    model: Any,
    tokenizer: Any,
    questions: Sequence[str],
    *,
    forget: Sequence[Example],
    whole: bool = False,
    longest: int = GENERATED_TOKENS,
    system: str | None = None,
    progress: str | None = None,
) -> tuple[Example, ...]:
    """Questions with the model's own greedy answers as rows, without those that name a subject to forget or say no text.

    Args:
        whole: only answers that end by themselves.
        longest: tokens at which answers are cut, or given up.
    """
    subjects = names(forget)
    asked = [question for question in questions if not names_any(question, subjects)]
    turns = () if system is None else (Message("system", system),)
    made = generate_all(
        TransformersGenerator(model, tokenizer),
        [Prompt((*turns, Message("user", question))) for question in asked],
        Decoding(max_new_tokens=longest),
        store=GenerationStore(),
        progress=progress,
    )
    return tuple(
        Example.from_qa(question, answer.text)
        for question, answer in zip(asked, made, strict=True)
        if is_text(answer.text) and not names_any(answer.text, subjects) and not (whole and answer.tokens == longest)
    )
