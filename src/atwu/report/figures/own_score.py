"""Which token score belongs to a label: the one its own weighting is made of."""

from __future__ import annotations

from collections.abc import Sequence

from atwu.report.records import Records, RunRecord


def own_score(run: RunRecord) -> str | None:
    """Name of the score, or None where a run has none: uniform weights, labels, a combination of two, or unknown.

    A result without its `run.json` has one if a learned scorer was measured, which only the model's own can be.
    """
    if run.run is not None:
        name = str((run.run.get("recipe") or {}).get("weighting", ""))
    else:
        name = run.trace.weighting if run.trace is not None else "scorer"
    return name if name != "labels" and f"auroc_{name}" in run.result.sets.get("forget", {}) else None


def own_scores(records: Records) -> dict[str, str]:
    """Label -> score, for those that have one."""
    found = {label: {own_score(run) for run in records.of(label)} for label in records.labels}
    return {label: next(iter(names)) for label, names in found.items() if len(names) == 1 and None not in names}  # type: ignore[misc]


def row_values(runs: Sequence[RunRecord], metric: str, split: str = "forget") -> list[float]:
    """Values of all rows of all runs, None left out."""
    return [
        value
        for run in runs
        if split in run.result.rows
        for value in run.result.rows[split].metrics.get(metric, ())
        if value is not None
    ]
