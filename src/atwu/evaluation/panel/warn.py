"""Marks and warnings in words: what would otherwise be read too kindly."""

from __future__ import annotations

from collections.abc import Iterator

from atwu.evaluation.panel.session import FORGET, INSTRUCTIONS, RETAIN
from atwu.evaluation.result import EvalResult, MetricValue

WIN_RATE = 45.0
"""Below it, generation counts as degraded (the ATWU paper's mark)."""
REPETITIVENESS = 0.95
"""Share of the starting model's repetitiveness below which text counts as degraded (ATWU paper)."""
TASK_POINTS = 2.0
"""Points of accuracy on a general task below the starting model that count as degraded (ATWU paper, on MMLU)."""
SHARE_AFTER_TURNS = 0.5
"""J_ICR of the starting model, relative to its J_P, below which in-context relearning measures the model, not forgetting."""
FEW_CLUSTERS = 10
"""With fewer subjects a bootstrap interval is noticeably too narrow."""

Degraded = tuple[str, str, str]
"""Set, metric, sentence."""


def degraded(result: EvalResult, original: EvalResult | None) -> Iterator[Degraded]:
    """General abilities that were materially lost."""
    rate = _number(result, INSTRUCTIONS, "win_rate")
    if rate is not None and rate < WIN_RATE:
        yield INSTRUCTIONS, "win_rate", f"win rate {rate:.1f} is below {WIN_RATE:.0f}: generation degraded."
    now, before = (_number(side, INSTRUCTIONS, "repetitiveness") for side in (result, original))
    if now is not None and before and now < REPETITIVENESS * before:
        lost = f"{100 * (1 - now / before):.0f} % below the starting model's {before:.0f}"
        yield INSTRUCTIONS, "repetitiveness", f"repetitiveness {now:.0f} is {lost}: generation degraded."
    for task in result.sets.get("tasks", {}):
        now, before = (_number(side, "tasks", task) for side in (result, original))
        if now is not None and before is not None and now < before - TASK_POINTS:
            yield "tasks", task, f"{task} {now:.1f} is {before - now:.1f} points below the starting model: degraded."


NEEDED = (
    ("judge", "original", "FQ, RD and UQ"),
    ("open_ended", "original", "the win rate"),
    ("relearning", "original", "what relearning recovers"),
    ("quantisation", "original", "what rounding recovers"),
    ("truth_ratio", "retain-only", "forget quality"),
    ("membership", "retain-only", "privleak and the reference attack"),
)
"""Group, model that is compared with, and what is missing if that model's result lacks what the group compares."""
_COMPARED = {"relearning": ("memorization", "judge"), "quantisation": ("memorization", "judge")}


def warnings(result: EvalResult, original: EvalResult | None, retain_only: EvalResult | None = None) -> Iterator[str]:
    """One sentence for everything that a reader must not overlook."""
    given = {"original": original, "retain-only": retain_only}
    for group, role, what in NEEDED:
        other = given[role]
        wanted = _COMPARED.get(group, (group,))
        if other is None or group not in result.settings.get("metrics", ()):
            continue
        if not set(wanted) & set(other.settings.get("metrics", wanted)):
            yield f"{what} cannot be told: the {role} result lacks the metrics {' and '.join(wanted)}."
    for _, _, sentence in degraded(result, original):
        yield sentence
    plain, shown = (_number(original, FORGET, metric) for metric in ("J_P", "J_ICR"))
    if plain and shown is not None and shown < SHARE_AFTER_TURNS * plain:
        yield (
            f"the starting model itself states {shown:.1f} % of the facts after demonstrations and {plain:.1f} % without: "
            "J_ICR says little about forgetting here."
        )
    for split, metrics in result.sets.items():
        for name, value in metrics.items():
            if value.unscored:
                yield f"{split}: {value.unscored} answers are unscored in {name}; they count neither way."
    for split in (FORGET, RETAIN):
        rows = result.rows.get(split)
        if rows is not None and len(rows.ids) > 1 and rows.subjects == rows.ids:
            yield (
                f"{split}: rows name no subject, so intervals take them for independent; they are too narrow if several rows "
                "are about one (give a column 'subject')."
            )
        clusters = max((value.clusters for value in result.sets.get(split, {}).values()), default=0)
        if 1 < clusters < FEW_CLUSTERS:
            yield f"{split}: intervals rest on {clusters} subjects only and are too narrow."
        elif clusters == 1:
            yield f"{split}: all rows are about one subject, so there are no intervals."


def _number(result: EvalResult | None, split: str, metric: str) -> float | None:
    found: MetricValue | None = None if result is None else result.sets.get(split, {}).get(metric)
    return None if found is None else found.value
