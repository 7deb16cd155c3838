"""Goals of training from holdout rows: how likely are key tokens of rows that the model never saw?

They tell the controller when greedy answers are worth asking for. The verdict reads answers only (`verdict.py`).
"""

from __future__ import annotations

from atwu.evaluation.intervals import Resampler
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.row_statistics import resampler

HOLDOUT_SET, OTHER_PROMPTS, GENERAL, TEXTS = "holdout_rows", "other_prompts", "general", "texts"
"""Sets besides forget and retain set: holdout rows, forget rows with other prompts, general questions, general text. The
holdout rows are not called `holdout`, where `evaluate` measures membership only."""
UNSEEN_TEXTS = "unseen_texts"
"""Set of a table of answers: holdout texts, continued like the texts of the forget rows."""
CHANCE_LEVELS = {"key_token_probability": 0.02, "key_token_accuracy": 0.1}
"""Smallest limit of a metric: forget rows may have more common words than holdout rows."""


def row_resampler(split: str, rows: RowValues) -> Resampler:
    """Return the bootstrap resampler of a set: of its subjects, or of the rows about a single one."""
    return resampler(split, rows.subjects if len(set(rows.subjects)) > 1 else rows.ids)


def metric_value(result: EvalResult, split: str, name: str) -> float | None:
    """Return a metric of a set; None if it was not measured."""
    measured = result.sets.get(split, {}).get(name)
    return None if measured is None else measured.value


def holdout_limit(original: EvalResult, name: str) -> float:
    """Return the upper 95 % percentile of a metric's bootstrap draws on holdout rows, at least `CHANCE_LEVELS`.

    It is not widened: few rows must not make a limit lenient.
    """
    limit = max(metric_value(original, HOLDOUT_SET, name) or 0.0, CHANCE_LEVELS[name])
    rows = original.rows.get(HOLDOUT_SET)
    if rows is None or name not in rows.metrics:
        return limit
    ends = row_resampler(HOLDOUT_SET, rows).mean(rows.metrics[name]).percentiles()
    return limit if ends is None else max(limit, ends[1])


def training_goal(original: EvalResult, name: str) -> float:
    """Return the goal of training for a metric: the mean on holdout rows, at least `CHANCE_LEVELS`.

    Key-token probability has this goal; for accuracy it is `holdout_limit`.
    """
    return max(metric_value(original, HOLDOUT_SET, name) or 0.0, CHANCE_LEVELS[name])
