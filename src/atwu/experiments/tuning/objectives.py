"""What a search makes large: one number of an evaluation, with the groups that measure it and the parts it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from atwu.evaluation.result import EvalResult
from atwu.experiments.scales import Line, Scale
from atwu.methods.recipe import lookup

OVERALL = "overall"


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective; larger is better."""

    line: Line
    """Set (or "overall") and metric."""
    groups: tuple[str, ...]
    """Groups of metrics that measure it."""
    forget: Line
    """The part that says how much was forgotten."""
    retain: Line
    """The part that says how much was kept."""
    names: tuple[str, str]
    """What the two parts are called in tables."""
    digits: int = 3
    """Decimals worth printing."""
    needs_original: bool = False
    """It compares with the starting model's result."""
    needs_probes: bool = False
    """It is measured on RWKU's probes."""


OBJECTIVES: dict[str, Objective] = {
    "ES_delta": Objective(
        (OVERALL, "ES_delta"),
        ("memorization",),
        ("forget", "extraction_strength"),
        ("retain", "extraction_strength"),
        ("ES_forget", "ES_retain"),
    ),
    "N_delta": Objective(
        (OVERALL, "N_delta_official"),
        ("rwku",),
        (OVERALL, "forget_all_official"),
        (OVERALL, "neighbour_all_official"),
        ("forget_all", "neighbour_all"),
        needs_probes=True,
    ),
    "UQ": Objective(
        (OVERALL, "UQ"), ("memorization", "judge"), (OVERALL, "FQ"), (OVERALL, "RD"), ("FQ", "RD"), needs_original=True
    ),
}


def objective_name(name: str | None, scale: Scale) -> str:
    """The name of an objective in the table.

    Args:
        name: as given, or None for the scale's.
        scale: where it is measured.

    Raises:
        ValueError: there is none of that name.
    """
    if name is None:
        metric = scale.objective[1]
        name = next((key for key, each in OBJECTIVES.items() if metric in (key, each.line[1])), metric)
    lookup("objective", name, OBJECTIVES)
    return name


def number(result: EvalResult, line: Line) -> float | None:
    """A number of a result; None where it was not measured or is not finite."""
    split, metric = line
    metrics = result.overall if split == OVERALL else result.sets.get(split, {})
    found = metrics[metric].value if metric in metrics else None
    return found if found is not None and math.isfinite(found) else None
