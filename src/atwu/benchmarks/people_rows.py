"""Rows of the built-in benchmark "people": fictitious people, facts about them, and exact key-token spans.

`people("small")` draws people and one row per (person, fact) from the words and patterns of `people_facts.yaml`. Forget, retain
and holdout people share all patterns, fillers and value vocabularies, like the authors of TOFU. So key tokens are not rare
words, and the words around them are not a fixed template. The rows depend only on (size, seed).
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
from atwu.benchmarks.base import Benchmark, LoadedRows, first_rows, name_parts, rows_to_measure
from atwu.data.schema import Example

Texts = Sequence[str]

PEOPLE_SPLITS = ("forget", "retain", "full", "holdout")
WRONG_ANSWERS = 4
RETAIN_STEPS = {"tiny": 1, "small": 7}
"""Size -> n, to evaluate every n-th retain row; other sizes evaluate at most 400, evenly spaced."""

_HOLE = re.compile(r"\{(\w+)\}|<(\w+)>|\[([^\]]*)\]|\((he|his|him)\)")
_COMPOSED = ("date", "book", "book2", "spouse", "sibling")
"""Slots without a list of values; `_draw_value` composes them."""
_FEMININE = {"he": "she", "his": "her", "him": "her"}


@dataclass(frozen=True, slots=True)
class PeopleSize:
    forget_people: int
    retain_people: int
    holdout_people: int
    rows_per_person: int


SIZES: dict[str, PeopleSize] = {
    "tiny": PeopleSize(4, 12, 4, rows_per_person=6),
    "small": PeopleSize(8, 72, 8, rows_per_person=10),
    "base": PeopleSize(20, 180, 20, rows_per_person=20),
}


@functools.cache
def people_facts() -> dict[str, Any]:
    """Return the words and sentence patterns of `people_facts.yaml`, which documents them, with all lists written out."""
    facts: dict[str, Any] = read_yaml(Path(__file__).with_name("people_facts.yaml"))
    refusals, empty = facts["refusals"], facts["empty"]
    return facts | {
        "slots": {slot: _values(written) for slot, written in facts["slots"].items()},
        "fillers": {name: [""] * empty.get(name, 0) + texts for name, texts in facts["fillers"].items()},
        "refusals": tuple(opening + line for opening in refusals["openings"] for line in refusals["statements"]),
        "facts": tuple(facts["facts"].values()),
    }


def _values(written: Any) -> Texts:
    """Read a list, the numbers from `first` to `last`, or each word of list `each` joined `with` each of another
    list."""
    if isinstance(written, list):
        return written
    if "first" in written:
        return tuple(str(number) for number in range(written["first"], written["last"] + 1))
    return tuple(f"{one} {other}" for one in written["each"] for other in written["with"])


@dataclass(frozen=True, slots=True)
class PeopleRows:
    forget: tuple[Example, ...] = field(repr=False)
    retain: tuple[Example, ...] = field(repr=False)
    """Retain set; the retain-only model is trained on it."""
    holdout: tuple[Example, ...] = field(repr=False)
    """Holdout set: people that no model is trained on."""

    @property
    def full(self) -> tuple[Example, ...]:
        """Retain and forget rows: training data of the original model."""
        return self.retain + self.forget

    def texts(self) -> list[str]:
        """Questions, answers and refusals of all splits: the tokenizer's training text."""
        rows = self.full + self.holdout
        return [text for row in rows for text in (row.question, row.answer)] + list(people_facts()["refusals"])


def people_rows(name: str) -> LoadedRows:
    """Return the rows of `people:SIZE:SPLIT`, or the first N of `people:SIZE:SPLIT:N`."""
    size, split, count = name_parts(name, "people:SIZE:SPLIT", SPLIT=PEOPLE_SPLITS)
    return LoadedRows(first_rows(name, getattr(people(size), split), count), name)


def people_benchmark(name: str) -> Benchmark:
    """Build `people:tiny`, `people:small` or `people:base`."""
    size = name.partition(":")[2]
    data = people(size)
    retain = rows_to_measure(data.retain)
    # Of `small` 103 of 720 rows, those that our published results were measured on.
    if size in RETAIN_STEPS:
        retain = data.retain[:: RETAIN_STEPS[size]]
    return Benchmark(
        name=name,
        forget_source=f"{name}:forget",
        retain_source=f"{name}:retain",
        full_source=f"{name}:full",
        retain_only_source=f"{name}:retain",
        forget=rows_to_measure(data.forget),
        retain=retain,
        pool=data.retain,
        holdout=data.holdout,
    )


@functools.cache
def people(size: str = "small", *, seed: int = 0) -> PeopleRows:
    """Generate the benchmark.

    Args:
        size: `tiny` (tests), `small` (demo, about two minutes of training on two cores) or `base` (GPU).
        seed: determines people, facts and phrasing; equal (size, seed) give equal rows.
    """
    if size not in SIZES:
        raise ValueError(f"unknown people size {size!r}; choose one of {', '.join(SIZES)}.")
    spec = SIZES[size]
    counts = (spec.forget_people, spec.retain_people, spec.holdout_people)
    # A text as seed: Python hashes it in the same way in every process and version.
    everyone = _draw_people(sum(counts), random.Random(f"people/{seed}"))
    rows: list[list[Example]] = []
    for person in everyone:
        # A generator of its own, so that the rows of a person do not depend on those of others.
        rng = random.Random(f"rows/{seed}/{person.values['name']}")
        chosen = rng.sample(people_facts()["facts"], spec.rows_per_person)
        rows.append([_row(fact, person, everyone, rng) for fact in chosen])
    # In the order in which they were drawn: forget, retain, holdout people.
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
        pronoun = "he"
        if feminine:
            pronoun = "she"
        name = _draw_name(rng, pronoun)
        book, book2 = _draw_value("book", rng), _draw_value("book2", rng)
        # A name or a pair of titles that two people shared would make the facts of one those of the other.
        if name in taken or book == book2 or f"{book}{book2}" in titles:
            continue
        taken.add(name)
        titles.update((f"{book}{book2}", f"{book2}{book}"))
        values = {slot: _draw_value(slot, rng) for slot in (*people_facts()["slots"], *_COMPOSED)}
        values |= {"name": name, "book": book, "book2": book2}
        while values["language2"] == values["language"]:
            values["language2"] = _draw_value("language2", rng)
        everyone.append(_Person(values, feminine))
    return everyone


def _draw_name(rng: random.Random, pronoun: str) -> str:
    names = people_facts()["names"]
    first = rng.choice(names["first_starts"]) + rng.choice(names["first_ends"][pronoun])
    return f"{first} {rng.choice(names['last_starts'])}{rng.choice(names['last_ends'])}"


def _draw_value(slot: str, rng: random.Random) -> str:
    facts = people_facts()
    if slot in ("book", "book2"):
        titles = facts["titles"]
        noun, other = rng.sample(titles["nouns"], 2)
        return str(rng.choice(titles["forms"]).format(a=rng.choice(titles["adjectives"]), n=noun, m=other))
    if slot in ("spouse", "sibling", "name"):
        return _draw_name(rng, rng.choice(("she", "he")))
    if slot == "date":
        return f"{rng.randint(1, 28)} {rng.choice(facts['months'])} {rng.randint(1935, 1989)}"
    return str(rng.choice(facts["slots"][slot]))


def _row(fact: Mapping[str, Texts], person: _Person, everyone: Sequence[_Person], rng: random.Random) -> Example:
    values = person.values
    # Any wording may be the trained one, so that paraphrases are no harder than it.
    patterns = [pattern.format(**values) for pattern in fact["questions"]]
    rng.shuffle(patterns)
    question, *paraphrases = patterns
    # Fillers stand around the sentence, so that its words are no fixed template.
    parts = _expand(f"<open>{rng.choice(fact['answers'])}<close>.", rng, feminine=person.feminine)
    # A value that the question says is no secret, such as the name of the person.
    secret = {slot for slot, _ in parts if slot and values[slot] not in question}
    answer, spans = _fill(parts, values, secret)
    wrong: list[str] = []
    while len(wrong) < WRONG_ANSWERS:
        other = ""
        if "name" in secret:
            other = rng.choice(everyone).values["name"]
        # Sorted, since the order of a set differs between processes.
        false = {slot: other if slot == "name" else _draw_value(slot, rng) for slot in sorted(secret)}
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
        alternate=rng.choice(people_facts()["refusals"]),
        subject=values["name"],
    )


def _expand(pattern: str, rng: random.Random, *, feminine: bool) -> list[tuple[str, str]]:
    """Draw all choices and fillers of a pattern; returns (slot, "") and ("", text) pairs."""
    parts: list[tuple[str, str]] = []
    end = 0
    for hole in _HOLE.finditer(pattern):
        slot, filler, choice, pronoun = hole.groups()
        parts.append(("", pattern[end : hole.start()]))
        end = hole.end()
        if slot:
            parts.append((slot, ""))
        elif pronoun:
            if feminine:
                pronoun = _FEMININE[pronoun]
            parts.append(("", pronoun))
        else:
            texts = people_facts()["fillers"][filler] if filler else choice.split("|")
            # A filler may hold choices and fillers, too.
            parts += _expand(rng.choice(texts), rng, feminine=feminine)
    parts.append(("", pattern[end:]))
    return [part for part in parts if any(part)]


def _fill(
    parts: Sequence[tuple[str, str]], values: dict[str, str], secret: set[str]
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Join the pieces; returns the answer and the character ranges of its key tokens."""
    answer = ""
    spans: list[tuple[int, int]] = []
    for slot, text in parts:
        start = len(answer)
        answer += values[slot] if slot else text
        if slot in secret:
            spans.append((start, len(answer)))
    return answer[:1].upper() + answer[1:], tuple(spans)
