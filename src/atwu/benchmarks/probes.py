"""Probes of a benchmark: prompts of its own, answered in addition to the rows of the sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from atwu.data.schema import Example

ProbeKind = Literal["fb", "qa", "aa", "neighbour_fb", "neighbour_qa"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One prompt with its reference answer."""

    kind: str
    """Group of probes that are averaged."""
    row: Example
    """Turns and reference answer; a text to be continued has no turns."""
    opening: str = ""
    """Beginning of a text to be continued."""


@dataclass(frozen=True, slots=True)
class Probes:
    """Probes of a benchmark, in file order."""

    name: str
    """Name of their set, and of the metric that they are for."""
    probes: tuple[Probe, ...]

    @property
    def rows(self) -> tuple[Example, ...]:
        """Each probe as a row."""
        return tuple(probe.row for probe in self.probes)


@dataclass(frozen=True, slots=True)
class RwkuProbe:
    """One probe of RWKU (Jin et al. 2024)."""

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
    """RWKU's probes of the chosen subjects, by kind and in file order."""

    name: ClassVar[str] = "rwku"
    probes: tuple[RwkuProbe, ...]
    subjects: tuple[str, ...]
    duplicates: Mapping[ProbeKind, int]
    """Number of exact duplicate rows that were dropped."""
    left_out: Mapping[ProbeKind, int]
    """Number of distinct rows above the limit per kind."""

    @property
    def rows(self) -> tuple[Example, ...]:
        """Each probe as a row."""
        return tuple(Example.from_qa(probe.query, probe.answer, subject=probe.subject) for probe in self.probes)


BenchmarkProbes: TypeAlias = Probes | RwkuProbes
