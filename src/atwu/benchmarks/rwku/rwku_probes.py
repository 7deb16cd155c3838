"""Probes of RWKU (Jin et al. 2024) about chosen subjects, and a probe as the question put to a model.

Training rows and evaluation take the question from here, so they are worded alike. The words of the instructions are
our own, so numbers compare between models measured here, and with the literature to a few points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atwu.benchmarks.dataset_files import Tables
from atwu.benchmarks.rwku.rwku_tables import PROBES, ProbeKind
from atwu.benchmarks.rwku.subjects import normal_name, with_close_names
from atwu.benchmarks.subsample import evenly_spaced
from atwu.data.records import Record

ATTACKS = {
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
"""The nine families of attacks by the paper's names, as the files spell them; the files also add the language."""

CAPS: Mapping[ProbeKind, int] = {"fb": 300, "qa": 300, "aa": 400, "neighbour_fb": 300, "neighbour_qa": 300}
"""Most probes of each kind, as in the ATWU paper's evaluation."""

_COMPLETE = "Fill in the blank in the text below. Give only the missing words."
_ANSWER = "Give a short answer to the question below."


@dataclass(frozen=True, slots=True)
class RwkuProbe:
    """One question put to a model."""

    kind: ProbeKind
    subject: str
    """Whom the probe, or the neighbour it asks about, belongs to."""
    query: str
    answer: str
    attack: str | None = None
    """Family of the attack, one of `ATTACKS`' values; None unless `kind` is `aa`."""
    neighbour: str | None = None
    """Whom or what a neighbour probe asks about."""


@dataclass(frozen=True, slots=True)
class RwkuProbes:
    """The probes of some subjects, kind by kind in the order of the files."""

    probes: tuple[RwkuProbe, ...]
    subjects: tuple[str, ...]
    duplicates: Mapping[ProbeKind, int]
    """Rows dropped because all their columns occurred before."""
    left_out: Mapping[ProbeKind, int]
    """Distinct rows left out to respect the caps."""


def load_probes(tables: Tables, *, subjects: Sequence[str], caps: Mapping[ProbeKind, int] = CAPS) -> RwkuProbes:
    """Read the probes of some subjects.

    Args:
        tables: a copy of RWKU, as `rwku_tables` finds it.
        subjects: names as in the files, accents included, such as `CANONICAL_FORGET`; their order does not matter.
        caps: most probes per kind; what is kept is spread evenly over the rows. A kind without a cap is kept whole.

    Raises:
        FileNotFoundError: when a table is missing.
        ValueError: for an unknown subject (the text names close ones), or a row without its columns.
    """
    wanted = tuple(dict.fromkeys(normal_name(name) for name in subjects))
    known: set[str] = set()
    probes: list[RwkuProbe] = []
    duplicates: dict[ProbeKind, int] = {}
    left_out: dict[ProbeKind, int] = {}
    for kind, table in PROBES.items():
        rows = [parse_probe(kind, record) for record in tables.table(table)]
        known.update(probe.subject for probe, _ in rows)
        rows = [row for row in rows if row[0].subject in wanted]
        distinct = [probe for probe, _ in dict.fromkeys(rows)]
        kept = evenly_spaced(distinct, caps.get(kind))
        duplicates[kind] = len(rows) - len(distinct)
        left_out[kind] = len(distinct) - len(kept)
        probes += kept
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(
            f"{tables.folder or 'RWKU'} has no probes about {with_close_names(unknown, known)}. It has {len(known)} subjects; "
            "a name must be spelled as in the files, with its accents, commas and capitals."
        )
    return RwkuProbes(tuple(probes), wanted, duplicates, left_out)


def parse_probe(kind: ProbeKind, record: Record) -> tuple[RwkuProbe, str]:
    """A probe, and its `type` as the file spells it, which counts when rows are compared.

    Raises:
        ValueError: for an unknown attack.
    """
    where, row = record
    attack = _attack(row["type"], where) if kind == "aa" else None
    probe = RwkuProbe(kind, normal_name(row["subject"]), row["query"], row["answer"], attack, row.get("neighbor"))
    return probe, row["type"]


def probe_question(probe: RwkuProbe) -> str:
    """The user's turn of a probe.

    A probe with in-context learning carries its own `Question:` marks. A few blanks of the published files are
    questions in truth; they keep the instruction of their kind.
    """
    instruction = _COMPLETE if probe.kind.endswith("fb") else _ANSWER
    mark = "" if probe.attack == "in-context learning" else "Question: "
    return f"{instruction}\n{mark}{probe.query}"


def _attack(spelled: str, where: str) -> str:
    family = spelled.partition("(")[0].replace("-", " ").strip()
    if family not in ATTACKS:
        raise ValueError(f"{where}: type {spelled!r} is no known attack; known are {', '.join(ATTACKS)}.")
    return ATTACKS[family]
