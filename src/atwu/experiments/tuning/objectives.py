"""What a search makes large: one number of an evaluation, with the groups that measure it and the parts it is made of."""

from __future__ import annotations

from dataclasses import dataclass

from atwu._names import lookup
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.panel import find_metric
from atwu.experiments.scale import Scale
from atwu.report.values import Line


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

    @property
    def needs_original(self) -> bool:
        """Whether it compares with the starting model's result."""
        return any((found := find_metric(name).compares) and found[0] == "original" for name in self.groups)


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
    ),
    "UQ": Objective((OVERALL, "UQ"), ("memorization", "judge"), (OVERALL, "FQ"), (OVERALL, "RD"), ("FQ", "RD")),
}


def objective_name(name: str | None, scale: Scale) -> str:
    """The name of an objective in the table; of the scale's own where none is given.

    Raises:
        ValueError: there is none of that name.
    """
    if name is None:
        metric = scale.objective[1]
        name = next((key for key, each in OBJECTIVES.items() if metric in (key, each.line[1])), metric)
    lookup("objective", name, OBJECTIVES)
    return name
