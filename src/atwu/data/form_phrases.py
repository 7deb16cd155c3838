"""The words of the forms of a question in each language (`form_phrases.yaml`), and answers that begin with yes or no."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from atwu._file_reading import read_yaml
from atwu.data.languages import detect_language
from atwu.data.schema import Example

Phrases: TypeAlias = Mapping[str, tuple[str, ...]]
"""Name of a form, or of a kind of words -> its texts."""


@functools.cache
def form_phrases() -> Mapping[str, Phrases]:
    """Return language -> its phrases."""
    languages: dict[str, dict[str, str | list[str]]] = read_yaml(Path(__file__).with_name("form_phrases.yaml"))
    by_language: dict[str, Phrases] = {}
    for language, phrases in languages.items():
        # A single text is written without a list.
        several = {name: [texts] if isinstance(texts, str) else texts for name, texts in phrases.items()}
        by_language[language] = {name: tuple(texts) for name, texts in several.items()}
    return by_language


def row_language(row: Example) -> str:
    """Return the language of a row, or of a plain text.

    The answer is read with the question: a short question may look like one in a neighbour language ("Woran leidet Katrin
    Vogel?" like Norwegian, "Who diagnosed Mina Park?" like Italian).
    """
    return detect_language(f"{row.question} {row.answer}".strip())


def beginnings(form: str) -> tuple[str, ...]:
    """Return the beginnings of a plain text in a form, in all languages."""
    return tuple(text for phrases in form_phrases().values() for text in phrases[form])


def opposite_answer(row: Example) -> str | None:
    """Return "No" for an answer that begins with "Yes", and the other way round; None for other answers."""
    said = polar_word(row)
    if said is None:
        return None
    phrases = form_phrases()[row_language(row)]
    if said in phrases["yes"]:
        return phrases["no"][0]
    return phrases["yes"][0]


def polar_word(row: Example) -> str | None:
    """Return the word for yes or no, in the language of the row, with which an answer begins; None for other answers.

    A row whose labels are all elsewhere asks for more than yes or no: "Yes, she lives in Port Sel." with the label "Port Sel".
    """
    language = row_language(row)
    if language not in form_phrases() or not row.messages:
        return None
    match = _polar_beginning(language).match(row.answer)
    if match is None:
        return None
    labels = row.forget_spans or ()
    if not labels and row.asked_span is not None:
        labels = (row.asked_span,)
    if labels and all(start >= match.end() for start, _ in labels):
        return None
    return match.group()


@functools.cache
def _polar_beginning(language: str) -> re.Pattern[str]:
    """Return a pattern of yes and no at the beginning of an answer in a language that has phrases."""
    phrases = form_phrases()[language]
    words = sorted((*phrases["yes"], *phrases["no"]), key=len, reverse=True)
    # "No. 5" is a number, and "No man is an island" no answer to a yes/no question.
    return re.compile(rf"(?:{'|'.join(words)})(?=[,;:!。，、；！،؛—–-]|\s*[.]?\s*$|\.\s+\D|\s[–—-])")
