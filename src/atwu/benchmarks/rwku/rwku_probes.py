"""RWKU probes (Jin et al. 2024) of chosen subjects, and the prompt of each probe.

Training rows and evaluation use the same prompts. The instructions are written for this project, so scores are
comparable between models evaluated here, and only approximately with published ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atwu.benchmarks.dataset_files import Tables
from atwu.benchmarks.probes import ProbeKind, RwkuProbe, RwkuProbes
from atwu.benchmarks.rwku.rwku_tables import PROBES
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
"""The nine attack types: spelling in the files (which also append the language) -> name in the paper."""

CAPS: Mapping[ProbeKind, int] = {"fb": 300, "qa": 300, "aa": 400, "neighbour_fb": 300, "neighbour_qa": 300}
"""Maximum number of probes per kind, as in the evaluation of the ATWU paper."""

_COMPLETE = "Fill in the blank in the text below. Give only the missing words."
_ANSWER = "Give a short answer to the question below."


def load_probes(tables: Tables, *, subjects: Sequence[str], caps: Mapping[ProbeKind, int] = CAPS) -> RwkuProbes:
    """Read the probes of some subjects.

    Args:
        subjects: names as in the files, with accents, such as `CANONICAL_FORGET`; order does not matter.
        caps: maximum number of probes per kind, chosen evenly spaced. A kind without a limit is used in full.
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
    """Parse a probe; also returns its `type` as spelled in the file, which is part of the comparison for duplicates."""
    where, row = record
    attack = _attack(row["type"], where) if kind == "aa" else None
    probe = RwkuProbe(kind, normal_name(row["subject"]), row["query"], row["answer"], attack, row.get("neighbor"))
    return probe, row["type"]


def probe_question(probe: RwkuProbe) -> str:
    """Return the user turn of a probe.

    A probe with in-context learning contains its own `Question:` marks. A few published fill-in-the-blank probes are
    actually questions; they keep the instruction of their kind.
    """
    instruction = _COMPLETE if probe.kind.endswith("fb") else _ANSWER
    mark = "" if probe.attack == "in-context learning" else "Question: "
    return f"{instruction}\n{mark}{probe.query}"


def _attack(spelled: str, where: str) -> str:
    family = spelled.partition("(")[0].replace("-", " ").strip()
    if family not in ATTACKS:
        raise ValueError(f"{where}: unknown attack type {spelled!r}; known types are {', '.join(ATTACKS)}.")
    return ATTACKS[family]
