"""Probes of RWKU (Jin et al. 2024) for chosen subjects: files into probes, and probes into prompts.

Takes a folder with `forget_level1.jsonl` (fill in the blank, FB), `forget_level2.jsonl` (questions, QA),
`forget_level3.jsonl` (adversarial attacks, AA), `neighbor_level1.jsonl` and `neighbor_level2.jsonl` (FB and QA about
what is close to a subject). The published files repeat many rows; repetitions are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from atwu.benchmarks.rwku.files import read_table
from atwu.benchmarks.rwku.probes import ATTACKS, FILES, Probe, ProbeKind, parse_probe, probe_question
from atwu.benchmarks.rwku.subjects import CANONICAL_FORGET, SURROGATE_RETAIN, normal_name, with_close_names
from atwu.data.readers import Record, read_jsonl
from atwu.data.schema import Message
from atwu.data.spread import spread
from atwu.evaluation.prompts import Prompt

__all__ = [
    "ATTACKS",
    "CANONICAL_FORGET",
    "CAPS",
    "FILES",
    "SURROGATE_RETAIN",
    "Probe",
    "ProbeKind",
    "RwkuProbes",
    "load_probes",
    "to_prompt",
]

CAPS: Mapping[ProbeKind, int] = MappingProxyType(
    {"fb": 300, "qa": 300, "aa": 400, "neighbour_fb": 300, "neighbour_qa": 300}
)
"""Most probes of each kind, as in the ATWU paper's evaluation."""


@dataclass(frozen=True, slots=True)
class RwkuProbes:
    """The probes of some subjects, kind by kind in the order of the files."""

    probes: tuple[Probe, ...]
    subjects: tuple[str, ...]
    duplicates: Mapping[ProbeKind, int]
    """Rows dropped because all their columns occurred before."""
    left_out: Mapping[ProbeKind, int]
    """Distinct rows left out to respect the caps."""


def load_probes(
    folder: str | Path | None, *, subjects: Sequence[str], caps: Mapping[ProbeKind, int] = CAPS
) -> RwkuProbes:
    """Read the probes of some subjects.

    Args:
        folder: where the five files are; None takes the folder in ATWU_DATA, or the Hub, and counts the files' rows.
        subjects: names as in the files, accents included, such as `CANONICAL_FORGET`; their order does not matter.
        caps: most probes per kind; what is kept is spread evenly over the rows. A kind without a cap is kept whole.

    Raises:
        FileNotFoundError: when a file is missing.
        ValueError: for an unknown subject (the text names close ones), no subject, or a row without its columns.
    """
    wanted = tuple(dict.fromkeys(normal_name(name) for name in subjects))
    if not wanted:
        raise ValueError("no subject given; name at least one, or take CANONICAL_FORGET.")
    if any(cap < 1 for cap in caps.values()):
        raise ValueError(f"a cap must be at least 1, got {min(caps.values())}.")

    known: set[str] = set()
    probes: list[Probe] = []
    duplicates: dict[ProbeKind, int] = {}
    left_out: dict[ProbeKind, int] = {}
    for kind, records in _records(folder).items():
        rows = [parse_probe(kind, record) for record in records]
        known.update(probe.subject for probe, _ in rows)
        rows = [row for row in rows if row[0].subject in wanted]
        distinct = [probe for probe, _ in dict.fromkeys(rows)]
        kept = spread(distinct, caps.get(kind))
        duplicates[kind] = len(rows) - len(distinct)
        left_out[kind] = len(distinct) - len(kept)
        probes += kept
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(
            f"{folder or 'RWKU'} has no probes about {with_close_names(unknown, known)}. It has {len(known)} subjects; "
            "a name must be spelled as in the files, with its accents, commas and capitals."
        )
    return RwkuProbes(tuple(probes), wanted, duplicates, left_out)


def to_prompt(probe: Probe) -> Prompt:
    """The user's turn of a probe, and `Answer:` as the start of the assistant's.

    A probe with an affirmative suffix carries its own start of the answer, so nothing is put before the model's words.
    """
    prefill = "" if probe.attack == "affirmative suffix" else "Answer:"
    return Prompt((Message("user", probe_question(probe)),), prefill=prefill)


def _records(folder: str | Path | None) -> Mapping[ProbeKind, Sequence[Record]]:
    if folder is None:
        return {kind: read_table(name) for kind, name in FILES.items()}
    folder = Path(folder)
    missing = [name for name in FILES.values() if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} has no {', '.join(missing)}; RWKU's probes are in {', '.join(FILES.values())}."
        )
    return {kind: tuple(read_jsonl(folder / name)) for kind, name in FILES.items()}
