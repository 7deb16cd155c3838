"""The embedded benchmark "people": fictitious people, facts about them, exact secrets. Needs no download.

`people("small")` draws people and one row per (person, fact) from the words and patterns of `facts.yaml`. Forget,
retain and holdout people share every pattern, filler and value vocabulary, as the authors of TOFU do, so a secret is
not a rare word and the words around it are not a fixed template. Everything follows from (size, seed).
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atwu._file_reading import read_yaml
from atwu.benchmarks.base import SourceRows, first_rows
from atwu.data.schema import Example

Texts = Sequence[str]

PEOPLE_SPLITS = ("forget", "retain", "full", "holdout")
WRONG_ANSWERS = 4

_HOLE = re.compile(r"\{(\w+)\}|<(\w+)>|\[([^\]]*)\]|\((he|his|him)\)")
_COMPOSED = ("date", "book", "book2", "spouse", "sibling")
"""Slots without a list of values: `_draw_value` puts theirs together."""
_FEMININE = {"he": "she", "his": "her", "him": "her"}


@dataclass(frozen=True, slots=True)
class PeopleSize:
    """How much is generated."""

    forget_people: int
    retain_people: int
    holdout_people: int
    rows_per_person: int


SIZES: dict[str, PeopleSize] = {
    "tiny": PeopleSize(4, 12, 4, rows_per_person=6),
    "small": PeopleSize(8, 72, 8, rows_per_person=10),
    "base": PeopleSize(20, 180, 20, rows_per_person=20),
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything people are made of."""

    names: Mapping[str, Any]
    """`first_starts`, `first_ends` of a `she` and a `he`, `last_starts` and `last_ends`."""
    titles: Mapping[str, Texts]
    """`adjectives`, `nouns` and `forms` of the titles of books."""
    months: Texts
    slots: Mapping[str, Texts]
    """Slot -> its values."""
    fillers: Mapping[str, Texts]
    refusals: Texts
    """Lines for `Example.alternate`."""
    kinds: Sequence[Mapping[str, Texts]]
    """Kinds of rows: wordings of the `questions` and of the `answers`."""


@functools.cache
def people_facts() -> Facts:
    """The words and sentence patterns of `facts.yaml`, which explains them."""
    found = read_yaml(Path(__file__).with_name("facts.yaml"), aliases=True)
    refusals, empty = found["refusals"], found["empty"]
    return Facts(
        names=found["names"],
        titles=found["titles"],
        months=found["months"],
        slots={slot: _values(given) for slot, given in found["slots"].items()},
        fillers={name: [""] * empty.get(name, 0) + texts for name, texts in found["fillers"].items()},
        refusals=tuple(opening + line for opening in refusals["openings"] for line in refusals["statements"]),
        kinds=tuple(found["facts"].values()),
    )


def _values(given: Any) -> Texts:
    """A list, the numbers from `first` to `last`, or `each` word of a list `with` each of another."""
    if isinstance(given, list):
        return given
    if "first" in given:
        return tuple(str(number) for number in range(given["first"], given["last"] + 1))
    return tuple(f"{one} {other}" for one in given["each"] for other in given["with"])


@dataclass(frozen=True, slots=True)
class PeopleRows:
    """The rows of every split."""

    forget: tuple[Example, ...] = field(repr=False)
    """Rows to be forgotten."""
    retain: tuple[Example, ...] = field(repr=False)
    """Rows to be kept; the retain-only model is trained on these."""
    holdout: tuple[Example, ...] = field(repr=False)
    """Rows of people nothing is trained on."""

    @property
    def full(self) -> tuple[Example, ...]:
        """Retain and forget rows: what the starting model is trained on."""
        return self.retain + self.forget

    def texts(self) -> list[str]:
        """Questions, answers and refusals of all splits: the corpus for the tokenizer."""
        rows = self.full + self.holdout
        return [text for row in rows for text in (row.question, row.answer)] + list(people_facts().refusals)


def people_rows(name: str) -> SourceRows:
    """Rows of a source `people:SIZE:SPLIT`, or of `people:SIZE:SPLIT:N` the first N.

    Raises:
        ValueError: unknown size or split, or not as many rows.
    """
    parts = name.split(":", 3)
    if len(parts) < 3 or parts[2] not in PEOPLE_SPLITS:
        raise ValueError(f"{name!r} is not people:SIZE:SPLIT[:N]; the splits are {', '.join(PEOPLE_SPLITS)}.")
    rows = getattr(people(parts[1]), parts[2])
    return SourceRows(first_rows(name, rows, parts[3] if len(parts) == 4 else None), (), ())


@functools.cache
def people(size: str = "small", *, seed: int = 0) -> PeopleRows:
    """Generate the benchmark.

    Args:
        size: `tiny` (tests), `small` (demo, about two minutes of training on two cores) or `base` (GPU).
        seed: decides people, facts, wordings; rows are equal for equal (size, seed).

    Raises:
        ValueError: unknown size.
    """
    if size not in SIZES:
        raise ValueError(f"unknown people size {size!r}; choose one of {', '.join(SIZES)}.")
    spec = SIZES[size]
    counts = (spec.forget_people, spec.retain_people, spec.holdout_people)
    everyone = _draw_people(sum(counts), random.Random(f"people/{seed}"))
    rows = [_rows_of(person, everyone, spec, seed) for person in everyone]
    ends = (counts[0], counts[0] + counts[1], sum(counts))
    forget, retain, holdout = (
        tuple(row for group in rows[start:end] for row in group) for start, end in zip((0, *ends), ends, strict=False)
    )
    return PeopleRows(forget, retain, holdout)


@dataclass(frozen=True, slots=True)
class _Person:
    values: dict[str, str]
    """Slot -> this person's value."""
    feminine: bool


def _draw_people(count: int, rng: random.Random) -> list[_Person]:
    everyone: list[_Person] = []
    taken: set[str] = set()
    titles: set[str] = set()
    while len(everyone) < count:
        feminine = rng.random() < 0.5
        name = _draw_name(rng, "she" if feminine else "he")
        book, book2 = _draw_value("book", rng), _draw_value("book2", rng)
        if name in taken or book == book2 or f"{book}{book2}" in titles:
            continue
        taken.add(name)
        titles.update((f"{book}{book2}", f"{book2}{book}"))
        values = {slot: _draw_value(slot, rng) for slot in (*people_facts().slots, *_COMPOSED)}
        values |= {"name": name, "book": book, "book2": book2}
        while values["language2"] == values["language"]:
            values["language2"] = _draw_value("language2", rng)
        everyone.append(_Person(values, feminine))
    return everyone


def _draw_name(rng: random.Random, pronoun: str) -> str:
    names = people_facts().names
    first = rng.choice(names["first_starts"]) + rng.choice(names["first_ends"][pronoun])
    return f"{first} {rng.choice(names['last_starts'])}{rng.choice(names['last_ends'])}"


def _draw_value(slot: str, rng: random.Random) -> str:
    facts = people_facts()
    if slot in ("book", "book2"):
        noun, other = rng.sample(facts.titles["nouns"], 2)
        return rng.choice(facts.titles["forms"]).format(a=rng.choice(facts.titles["adjectives"]), n=noun, m=other)
    if slot in ("spouse", "sibling", "name"):
        return _draw_name(rng, rng.choice(("she", "he")))
    if slot == "date":
        return f"{rng.randint(1, 28)} {rng.choice(facts.months)} {rng.randint(1935, 1989)}"
    return rng.choice(facts.slots[slot])


def _rows_of(person: _Person, everyone: Sequence[_Person], spec: PeopleSize, seed: int) -> list[Example]:
    name = person.values["name"]
    rng = random.Random(f"rows/{seed}/{name}")
    chosen = rng.sample(people_facts().kinds, spec.rows_per_person)
    return [_row(fact, person, everyone, rng) for fact in chosen]


def _row(fact: Mapping[str, Texts], person: _Person, everyone: Sequence[_Person], rng: random.Random) -> Example:
    values = person.values
    wordings = [pattern.format(**values) for pattern in fact["questions"]]
    rng.shuffle(wordings)
    question, *paraphrases = wordings
    parts = _expand(f"<open>{rng.choice(fact['answers'])}<close>.", rng, feminine=person.feminine)
    secret = {slot for slot, _ in parts if slot and values[slot] not in question}
    answer, spans = _fill(parts, values, secret)
    wrong: list[str] = []
    while len(wrong) < WRONG_ANSWERS:
        other = rng.choice(everyone).values if "name" in secret else {}
        false = {slot: other["name"] if slot == "name" else _draw_value(slot, rng) for slot in sorted(secret)}
        if any(false[slot] == values[slot] for slot in secret):
            continue
        text, _ = _fill(parts, values | false, secret)
        if text not in wrong:
            wrong.append(text)
    return Example.from_qa(
        question,
        answer,
        forget_spans=spans,
        paraphrases=tuple(paraphrases),
        wrong_answers=tuple(wrong),
        alternate=rng.choice(people_facts().refusals),
        subject=values["name"],
    )


def _expand(pattern: str, rng: random.Random, *, feminine: bool) -> list[tuple[str, str]]:
    """Draw every choice and filler of a pattern; what is left are (slot, "") and ("", text) pairs."""
    parts: list[tuple[str, str]] = []
    end = 0
    for hole in _HOLE.finditer(pattern):
        slot, filler, choice, pronoun = hole.groups()
        parts.append(("", pattern[end : hole.start()]))
        end = hole.end()
        if slot:
            parts.append((slot, ""))
        elif pronoun:
            parts.append(("", _FEMININE[pronoun] if feminine else pronoun))
        else:
            drawn = rng.choice(people_facts().fillers[filler] if filler else choice.split("|"))
            parts += _expand(drawn, rng, feminine=feminine)
    parts.append(("", pattern[end:]))
    return [part for part in parts if any(part)]


def _fill(
    parts: Sequence[tuple[str, str]], values: dict[str, str], secret: set[str]
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Join the parts; return the answer and the character ranges of the secret slots."""
    answer = ""
    spans: list[tuple[int, int]] = []
    for slot, text in parts:
        start = len(answer)
        answer += values[slot] if slot else text
        if slot in secret:
            spans.append((start, len(answer)))
    return answer[:1].upper() + answer[1:], tuple(spans)
