"""Probes of RWKU (Jin et al. 2024): questions of its own, answered in addition to the rows of the sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ProbeKind = Literal["fb", "qa", "aa", "neighbour_fb", "neighbour_qa"]


@dataclass(frozen=True, slots=True)
class RwkuProbe:
    """One probe of RWKU."""

    kind: ProbeKind
    subject: str
    """Subject of the probe, or of the neighbour that it asks about."""
    query: str
    answer: str
    attack: str | None = None
    """Attack type, one of the values of `ATTACKS`; None unless `kind` is `aa`."""
    neighbour: str | None = None
    """Entity that a neighbour probe asks about."""


@dataclass(frozen=True, slots=True)
class RwkuProbes:
    """Probes of the chosen subjects, by kind and in file order."""

    probes: tuple[RwkuProbe, ...]
    subjects: tuple[str, ...]
    duplicates: Mapping[ProbeKind, int]
    """Number of exact duplicate rows that were dropped."""
    left_out: Mapping[ProbeKind, int]
    """Number of distinct rows above the limit per kind."""
