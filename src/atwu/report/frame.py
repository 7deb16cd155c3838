"""Results of models as one tidy data frame: a row per model and line, with the number, how it is printed, and its mark.

Every table, in the terminal, as text, as data and in the page, is this frame laid out. Best and second best among the unlearned
models, and general abilities that were materially lost, are marked as in the ATWU paper.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.result import EvalResult
from atwu.evaluation.warn import degraded
from atwu.report.values import REFERENCES, Line, cell_of, seeds_told, shown_interval, shown_number

DATA = ("label", "seeds", "set", "metric", "value", "low", "high", "seed_std", "n", "direction")
"""Columns that are data; the others say how it is shown."""
_COLUMNS = (*DATA, "digits", "number", "spread", "interval", "told", "reference", "mark")


def tidy(
    results: Mapping[str, EvalResult],
    *,
    references: Collection[str] = REFERENCES,
    runs: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Every number that models have.

    Args:
        results: model name -> result.
        references: names of models that are not ranked.
        runs: model name -> runs it is the mean of; numbers that only some of them have are not ranked.

    Returns:
        One row per model and line, model by model, set by set, derived metrics last. `number`, `spread` (over seeds),
        `interval` and `told` (`2 of 3 seeds`) are text; `mark` is best, second, degraded or empty.
    """
    rows: list[dict[str, Any]] = []
    for label, result in results.items():
        for split, metrics in [*result.sets.items(), (OVERALL, result.overall)]:
            for metric in metrics:
                if (cell := cell_of(result, (split, metric))) is not None:
                    text = {
                        "number": shown_number(cell.value, cell.digits),
                        "spread": "" if cell.seed_std is None else shown_number(cell.seed_std, cell.digits),
                        "interval": shown_interval(cell),
                        "told": seeds_told(cell, (runs or {}).get(label, 1)),
                        "reference": label in references,
                    }
                    rows.append({"label": label, "set": split, "metric": metric} | dataclasses.asdict(cell) | text)
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    numbers = ["value", "low", "high", "seed_std"]
    frame[numbers] = frame[numbers].astype(float)
    return frame.assign(mark=_marks(frame, results))


def _marks(frame: pd.DataFrame, results: Mapping[str, EvalResult]) -> pd.Series:
    """Ranks are those of printed values: numbers that print the same share a place, and of two models only one is marked."""
    marks = pd.Series("", frame.index, dtype=object)
    ranked = frame[~frame.reference.astype(bool) & (frame.told == "")]
    for _, column in ranked[ranked.direction != "none"].groupby(["set", "metric"]):
        numbers = column.number.astype(float)
        places = numbers.rank(method="dense", ascending=column.direction.iloc[0] == "down")
        if places.max() > 1:
            marks[places.index[places == 1]] = "best"
            marks[places.index[(places == 2) & (len(places) > 2)]] = "second"
    for name in frame.label[~frame.reference.astype(bool)].unique():
        for split, metric, _ in degraded(results[name], results.get("original")):
            marks[(frame.label == name) & (frame.set == split) & (frame.metric == metric)] = "degraded"
    return marks


def lines_of(frame: pd.DataFrame) -> list[Line]:
    """Every line that some model has a value on: set by set, derived metrics last."""
    found = list(dict.fromkeys(zip(frame.set, frame.metric, strict=True)))
    sets = [name for name in dict.fromkeys(split for split, _ in found) if name != OVERALL]
    return sorted(found, key=lambda line: [*sets, OVERALL].index(line[0]))
