"""The words and sentence patterns of `facts.yaml`, which explains them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._reading import read_yaml

FACTS_FILE = Path(__file__).with_name("facts.yaml")

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """One kind of row: wordings of the question (one is trained on, the others are paraphrases) and of the answer."""

    questions: Texts
    answers: Texts
    """Each stands between `<open>` and `<close>`, fillers that any answer may begin and end with."""


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
    kinds: tuple[Fact, ...]


@functools.cache
def people_facts() -> Facts:
    """Read the file."""
    found = read_yaml(FACTS_FILE, aliases=True)
    refusals, empty = found["refusals"], found["empty"]
    return Facts(
        names=found["names"],
        titles=found["titles"],
        months=tuple(found["months"]),
        slots={slot: _values(given) for slot, given in found["slots"].items()},
        fillers={name: ("",) * empty.get(name, 0) + tuple(texts) for name, texts in found["fillers"].items()},
        refusals=tuple(opening + line for opening in refusals["openings"] for line in refusals["statements"]),
        kinds=tuple(Fact(tuple(kind["questions"]), tuple(kind["answers"])) for kind in found["facts"].values()),
    )


def _values(given: Any) -> Texts:
    """A list, the numbers from `first` to `last`, or `each` word of a list `with` each of another."""
    if isinstance(given, list):
        return tuple(given)
    if "first" in given:
        return tuple(str(number) for number in range(given["first"], given["last"] + 1))
    return tuple(f"{one} {other}" for one in given["each"] for other in given["with"])
