"""Whether two results may be put side by side: the same rows, and the same settings as far as they matter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from atwu.evaluation.panel import all_metrics
from atwu.evaluation.result import EvalResult

EVERYWHERE = ("max_length", "system", "dtype", "backend")
"""What changes every number."""


def check_comparable(settings: Mapping[str, Any], other: EvalResult, *, role: str) -> None:
    """Check that another model was measured on the same rows in the same way, in the metrics that both have.

    Raises:
        ValueError: it was not; names what differs.
    """
    theirs = other.settings
    shared = set(settings["metrics"]) & set(theirs.get("metrics", ()))
    different = [
        f"{key} ({theirs.get(key)!r} there, {settings.get(key)!r} here)"
        for key in dict.fromkeys([*EVERYWHERE, *_matter_to(shared)])
        if theirs.get(key) != settings.get(key)
    ]
    rows = theirs.get("rows", {})
    different += [f"the {split} rows" for split, value in settings["rows"].items() if rows.get(split, value) != value]
    if different:
        raise ValueError(
            f"the {role} result ({other.model}) cannot be compared with: it differs in {'; '.join(different)}. "
            "Evaluate it again with the same rows and options."
        )


def _matter_to(names: Collection[str]) -> Iterator[str]:
    """Settings that change the numbers of some metrics."""
    for name, metric in all_metrics().items():
        if name in names:
            yield from metric.uses
            yield from (setting.name for setting in metric.settings if setting.compared)
            if metric.judged:
                yield "judge"
