"""Questions about a subject by its kind (`subject_templates.yaml`, or a file of the user in the same layout)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml
from atwu._names import did_you_mean
from atwu.methods.weightings.related_names import names_by_kind

SHIPPED = Path(__file__).with_name("subject_templates.yaml")
OWN_QUESTION = "own question"
"""Source of a question that the model wrote about its own statement."""
CHAIN, TRAINED_CHAIN = "chain", "chain, to train on"
"""Sources of questions about an answer: those that a request only measures, and others."""
_NAME = "{name}"
_QUESTION_MARKS = ("?", "？", "؟")


@dataclass(frozen=True, slots=True)
class SubjectQuestion:
    """A question in several ways of asking; the first one is the question of a row."""

    ways: tuple[str, ...]
    source: str
    """Where it comes from: `template`, `own question`, `chain`, `chain, to train on`, `questions` or `document`."""
    subject: str | None = None
    statement: str | None = None
    """Sentence that the question was made of; an answer that it does not say answers something else."""

    @property
    def question(self) -> str:
        return self.ways[0]

    @property
    def paraphrases(self) -> tuple[str, ...]:
        """The other ways that are questions; a row has them as paraphrases, which are never trained on."""
        return tuple(way for way in self.ways[1:] if is_question(way))


@dataclass(frozen=True, slots=True)
class SubjectKind:
    """A kind of subject, such as person or place."""

    name: str
    words: frozenset[str]
    """What the model may call a subject of this kind."""
    other_names: tuple[str, ...]
    """Names of this kind with which a question is asked for comparison."""
    templates: tuple[tuple[str, ...], ...]

    def questions(self, subject: str, *, source: str = "template") -> list[SubjectQuestion]:
        """Return the questions of this kind about a subject."""
        return [
            SubjectQuestion(tuple(way.replace(_NAME, subject) for way in ways), source, subject)
            for ways in self.templates
        ]


def is_question(way: str) -> bool:
    """Return whether a way of asking is a question; otherwise it is the beginning of a sentence."""
    return way.rstrip().endswith(_QUESTION_MARKS)


def read_templates(path: Path | None = None) -> dict[str, SubjectKind]:
    """Read the kinds of subjects with their questions.

    Args:
        path: a file in the layout of the shipped one; None for that one.

    Raises:
        ValueError: the file does not have this layout; the message names the kind and what is missing.
    """
    file = path or SHIPPED
    content = read_yaml(file)
    if not isinstance(content, dict) or not content:
        raise ValueError(
            f"{file} must hold kinds of subjects with words, names and questions; copy {SHIPPED} to begin."
        )
    return {str(name): _checked_kind(str(name), entry, file) for name, entry in content.items()}


def find_kind(kinds: Mapping[str, SubjectKind], name: str) -> SubjectKind:
    """Return the kind of a given name."""
    if name not in kinds:
        hint = did_you_mean(name, kinds, f" Kinds are {', '.join(kinds)}.")
        raise ValueError(f"there are no questions for the kind {name!r}.{hint}")
    return kinds[name]


def _checked_kind(name: str, entry: Any, file: Path) -> SubjectKind:
    where = f"{file}, kind {name!r}"
    missing = {"words", "names", "questions"} - set(entry if isinstance(entry, dict) else ())
    if missing:
        raise ValueError(f"{where}: {' and '.join(sorted(missing))} missing.")
    others: list[str] = []
    for kind in _texts(entry["names"], f"{where}, names"):
        if kind not in names_by_kind():
            raise ValueError(f"{where}, names: {kind!r} is none of {', '.join(names_by_kind())}.")
        others += names_by_kind()[kind]
    if not isinstance(entry["questions"], list) or not entry["questions"]:
        raise ValueError(f"{where}, questions: expected a list of lists of texts.")
    templates = [
        _checked_ways(ways, f"{where}, question {number}") for number, ways in enumerate(entry["questions"], start=1)
    ]
    words = frozenset(word.lower() for word in _texts(entry["words"], f"{where}, words"))
    return SubjectKind(name, words, tuple(others), tuple(templates))


def _checked_ways(value: Any, where: str) -> tuple[str, ...]:
    ways = _texts(value, where)
    for way in ways:
        if set(re.findall(r"\{.*?\}", way)) != {_NAME}:
            raise ValueError(f"{where}: {way!r} must contain {_NAME} and no other braces.")
    if not is_question(ways[0]):
        raise ValueError(f"{where}: the first way must be a question that ends with a question mark, got {ways[0]!r}.")
    return ways


def _texts(value: Any, where: str) -> tuple[str, ...]:
    texts: Sequence[Any] = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(f"{where}: expected a text or a list of texts, got {value!r:.80}.")
    return tuple(texts)
