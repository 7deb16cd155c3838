"""Every figure of a report, in its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from atwu.report.figures.attacks import attack_families, attacks
from atwu.report.figures.auroc_progression import auroc_progression
from atwu.report.figures.auroc_ridge import auroc_ridge
from atwu.report.figures.cost import cost
from atwu.report.figures.drawn import Drawn
from atwu.report.figures.pooled_roc import pooled_roc
from atwu.report.figures.trade_off import trade_off, trade_off_judged
from atwu.report.figures.training_curves import training_curves
from atwu.report.records import Records

FIGURES: Mapping[str, Callable[..., Drawn]] = {
    "trade_off": trade_off,
    "trade_off_judged": trade_off_judged,
    "auroc_ridge": auroc_ridge,
    "pooled_roc": pooled_roc,
    "auroc_progression": auroc_progression,
    "training_curves": training_curves,
    "attacks": attacks,
    "attack_families": attack_families,
    "cost": cost,
}
"""Name -> figure(records, focus=LABEL)."""


def all_figures(records: Records, *, focus: str | None = "atwu") -> list[Drawn]:
    """Draw them all; those without data say why."""
    return [draw(records, focus=focus) for draw in FIGURES.values()]
