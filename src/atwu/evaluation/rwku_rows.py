"""Probes of RWKU (Jin et al. 2024) for chosen subjects: files into probes, and probes into prompts.

Takes a folder with `forget_level1.jsonl` (fill in the blank, FB), `forget_level2.jsonl` (questions, QA),
`forget_level3.jsonl` (adversarial attacks, AA), `neighbor_level1.jsonl` and `neighbor_level2.jsonl` (FB and QA about
what is close to a subject). The published files repeat many rows; repetitions are dropped and counted. The words of
the instructions are our own, so numbers compare between models measured here, and with the literature to a few points.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from atwu.data.readers import Record, read_jsonl
from atwu.data.schema import Message
from atwu.evaluation.prompts import Prompt

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
CAPS: Mapping[ProbeKind, int] = MappingProxyType(
    {"fb": 300, "qa": 300, "aa": 400, "neighbour_fb": 300, "neighbour_qa": 300}
)
"""Most probes of each kind, as in the ATWU paper's evaluation."""

CANONICAL_FORGET = (
    "Beyoncé",
    "Blake Lively",
    "Bruce Springsteen",
    "Catherine, Princess of Wales",
    "Daniel Day-Lewis",
    "Donald Trump",
    "Dr. Dre",
    "Elon Musk",
    "Jennifer Lopez",
    "Jeff Goldblum",
)
"""The ten subjects the ATWU paper forgets together."""
SURROGATE_RETAIN = (
    "Evel Knievel",
    "Franklin D. Roosevelt",
    "Grace Kelly",
    "Halle Berry",
    "Henry Winkler",
    "Ice Cube",
    "James Earl Jones",
    "Jeff Bridges",
    "Jay-Z",
    "Jimmy Carter",
)
"""Ten other subjects, whose rows stand in for a retain set."""

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


@dataclass(frozen=True, slots=True)
class RwkuProbes:
    """The probes of some subjects, kind by kind in the order of the files."""

    probes: tuple[Probe, ...]
    subjects: tuple[str, ...]
    duplicates: Mapping[ProbeKind, int]
    """Rows dropped because all their columns occurred before."""
    left_out: Mapping[ProbeKind, int]
    """Distinct rows left out to respect the caps."""


def load_probes(folder: str | Path, *, subjects: Sequence[str], caps: Mapping[ProbeKind, int] = CAPS) -> RwkuProbes:
    """Read the probes of some subjects.

    Args:
        folder: where the five files are.
        subjects: names as in the files, accents included, such as `CANONICAL_FORGET`; their order does not matter.
        caps: most probes per kind; what is kept is spread evenly over the rows. A kind without a cap is kept whole.

    Raises:
        FileNotFoundError: when a file is missing.
        ValueError: for an unknown subject (the text names close ones), no subject, or a row without its columns.
    """
    folder = Path(folder)
    missing = [name for name in FILES.values() if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} has no {', '.join(missing)}; RWKU's probes are in {', '.join(FILES.values())}."
        )
    wanted = tuple(dict.fromkeys(unicodedata.normalize("NFC", name) for name in subjects))
    if not wanted:
        raise ValueError("no subject given; name at least one, or take CANONICAL_FORGET.")

    known: set[str] = set()
    probes: list[Probe] = []
    duplicates: dict[ProbeKind, int] = {}
    left_out: dict[ProbeKind, int] = {}
    for kind, name in FILES.items():
        rows = [_probe(kind, record) for record in read_jsonl(folder / name)]
        known.update(probe.subject for probe, _ in rows)
        rows = [row for row in rows if row[0].subject in wanted]
        distinct = [probe for probe, _ in dict.fromkeys(rows)]
        kept = list(_spread(distinct, caps.get(kind, len(distinct))))
        duplicates[kind] = len(rows) - len(distinct)
        left_out[kind] = len(distinct) - len(kept)
        probes += kept
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(_unknown(unknown, known, folder))
    return RwkuProbes(tuple(probes), wanted, duplicates, left_out)


def to_prompt(probe: Probe) -> Prompt:
    """The user's turn of a probe, and `Answer:` as the start of the assistant's.

    A probe with an affirmative suffix carries its own start of the answer, so nothing is put before the model's
    words; one with in-context learning carries its own `Question:` marks. A few blanks of the published files are
    questions in truth; they keep the instruction of their kind.
    """
    instruction = _COMPLETE if probe.kind.endswith("fb") else _ANSWER
    mark = "" if probe.attack == "in-context learning" else "Question: "
    prefill = "" if probe.attack == "affirmative suffix" else "Answer:"
    return Prompt((Message("user", f"{instruction}\n{mark}{probe.query}"),), prefill=prefill)


def _probe(kind: ProbeKind, record: Record) -> tuple[Probe, str]:
    """A probe, and its `type` as the file spells it, which counts when rows are compared."""
    where, columns = record
    needed = ["subject", "query", "type", "answer", *(["neighbor"] if kind.startswith("neighbour") else [])]
    wrong = [name for name in needed if not isinstance(columns.get(name), str)]
    if wrong:
        raise ValueError(f"{where}: expected text in {', '.join(wrong)}; the columns are {', '.join(columns)}.")
    attack = _attack(columns["type"], where) if kind == "aa" else None
    subject = unicodedata.normalize("NFC", columns["subject"])
    probe = Probe(kind, subject, columns["query"], columns["answer"], attack, columns.get("neighbor"))
    return probe, columns["type"]


def _attack(spelled: str, where: str) -> str:
    family = spelled.partition("(")[0].replace("-", " ").strip()
    if family not in _ATTACKS:
        raise ValueError(f"{where}: type {spelled!r} is no known attack; known are {', '.join(_ATTACKS)}.")
    return _ATTACKS[family]


def _spread(probes: Sequence[Probe], cap: int) -> Iterator[Probe]:
    """At most `cap` of the probes, evenly spaced, the first one included."""
    if cap < 1:
        raise ValueError(f"a cap must be at least 1, got {cap}.")
    count = min(cap, len(probes))
    return (probes[index * len(probes) // count] for index in range(count))


def _unknown(unknown: Sequence[str], known: set[str], folder: Path) -> str:
    plain = {_plain(name): name for name in sorted(known)}
    hints = []
    for name in unknown:
        near = [plain[close] for close in difflib.get_close_matches(_plain(name), plain, n=3)]
        hints.append(f"{name!r}" + (f" (close: {', '.join(near)})" if near else ""))
    return (
        f"{folder} has no probes about {'; '.join(hints)}. It has {len(known)} subjects; "
        "a name must be spelled as in the files, with its accents, commas and capitals."
    )


def _plain(name: str) -> str:
    """Lower case without accents."""
    letters = unicodedata.normalize("NFD", name.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
