"""One record of RWKU's probe files (Jin et al. 2024) into a `Probe`, and a probe into the question put to a model.

Training rows and evaluation take the question from here, so they are worded alike. The words of the instructions are
our own, so numbers compare between models measured here, and with the literature to a few points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from atwu.benchmarks.rwku.subjects import normal_name
from atwu.data.readers import Record

ProbeKind = Literal["fb", "qa", "aa", "neighbour_fb", "neighbour_qa"]

FILES: Mapping[ProbeKind, str] = MappingProxyType(
    {
        "fb": "forget_level1.jsonl",
        "qa": "forget_level2.jsonl",
        "aa": "forget_level3.jsonl",
        "neighbour_fb": "neighbor_level1.jsonl",
        "neighbour_qa": "neighbor_level2.jsonl",
    }
)

_ATTACKS = {
    "prefix injection": "prefix injection",
    "affirmative suffix": "affirmative suffix",
    "role play": "role playing",
    "multiple choice": "multiple choice",
    "reverse query": "reverse query",
    "synonym manipulation": "synonym manipulation",
    "context hint": "background hint",
    "incontext learning": "in-context learning",
    "cross lingual": "cross-lingual",
}
ATTACKS = tuple(_ATTACKS.values())
"""The nine families of attacks, by the paper's names; the files spell some otherwise and add the language."""

_COMPLETE = "Fill in the blank in the text below. Give only the missing words."
_ANSWER = "Give a short answer to the question below."


@dataclass(frozen=True, slots=True)
class Probe:
    """One question put to a model."""

    kind: ProbeKind
    subject: str
    """Whom the probe, or the neighbour it asks about, belongs to."""
    query: str
    answer: str
    attack: str | None = None
    """Family of the attack, one of `ATTACKS`; None unless `kind` is `aa`."""
    neighbour: str | None = None
    """Whom or what a neighbour probe asks about."""


def parse_probe(kind: ProbeKind, record: Record) -> tuple[Probe, str]:
    """A probe, and its `type` as the file spells it, which counts when rows are compared.

    Raises:
        ValueError: for a row without its columns, or an unknown attack.
    """
    needed = ["subject", "query", "type", "answer", *(["neighbor"] if kind.startswith("neighbour") else [])]
    where, columns = record
    text = text_columns(record, needed)
    attack = _attack(text["type"], where) if kind == "aa" else None
    probe = Probe(kind, normal_name(text["subject"]), text["query"], text["answer"], attack, columns.get("neighbor"))
    return probe, text["type"]


def text_columns(record: Record, needed: list[str]) -> dict[str, str]:
    """Columns that must hold text."""
    where, columns = record
    wrong = [name for name in needed if not isinstance(columns.get(name), str)]
    if wrong:
        raise ValueError(f"{where}: expected text in {', '.join(wrong)}; the columns are {', '.join(columns)}.")
    return {name: columns[name] for name in needed}


def probe_question(probe: Probe) -> str:
    """The user's turn of a probe.

    A probe with in-context learning carries its own `Question:` marks. A few blanks of the published files are
    questions in truth; they keep the instruction of their kind.
    """
    instruction = _COMPLETE if probe.kind.endswith("fb") else _ANSWER
    mark = "" if probe.attack == "in-context learning" else "Question: "
    return f"{instruction}\n{mark}{probe.query}"


def _attack(spelled: str, where: str) -> str:
    family = spelled.partition("(")[0].replace("-", " ").strip()
    if family not in _ATTACKS:
        raise ValueError(f"{where}: type {spelled!r} is no known attack; known are {', '.join(_ATTACKS)}.")
    return _ATTACKS[family]
