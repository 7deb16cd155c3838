"""What a model answers to rows in forms, and whether an answer gives the fact of a row away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from atwu.data.fact import telling_texts
from atwu.data.languages import WORD
from atwu.data.matching import states
from atwu.data.question_forms import FormRow
from atwu.data.render import with_system
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.facts.askings import form_prompt
from atwu.evaluation.generations import Decoding, GenerationStore, generate_all


def form_answers(
    generator: TransformersGenerator,
    written: Sequence[FormRow],
    decoding: Decoding,
    *,
    system: str | None,
    draws: int = 1,
    progress: str | None = None,
) -> list[str]:
    """Return the model's answer to each row, `draws` times."""
    prompts = [
        replace(form_prompt(form), messages=with_system(form.row.messages, system), draw=draw)
        for draw in range(draws)
        for form in written
    ]
    generations = generate_all(generator, prompts, decoding, store=GenerationStore(), progress=progress)
    return [generation.answer for generation in generations]


def lower_words(text: str) -> set[str]:
    """Return the words of a text in lower case."""
    return {word.lower() for word in WORD.findall(text)}


def key_words(row: Example) -> set[str]:
    """Return the words that give the fact of a row away, in lower case."""
    return {word for text in telling_texts(row) for word in lower_words(text)}


def states_any(answer: str, rows: Sequence[Example]) -> bool:
    """Whether an answer states the fact of any of these rows."""
    return any(states(answer, text) for row in rows for text in (*telling_texts(row), *row.aliases))
