"""The two stages of the ATWU paper: search everything where runs are cheap, then only the learning rate where they count."""

from __future__ import annotations

import dataclasses

from atwu._cache import short_hash
from atwu.experiments.scales import Scale
from atwu.experiments.tuning.search import AllPrunedError, Search, SearchResult
from atwu.methods.options import Range

TRANSFER_TRIALS = 5
FACTOR = 5.0
"""The second stage searches the learning rate from a fifth to five times the first stage's best."""


def second_stage(
    first: SearchResult, scale: Scale, *, trials: int = TRANSFER_TRIALS, objective: str | None = None
) -> Search:
    """The search for the learning rate alone, with everything else as the first stage's best trial had it.

    Args:
        first: a finished search.
        scale: where to search now.
        trials: budget; the first trial is at the first stage's best learning rate.
        objective: what is made large now; None for that of the scale.

    Raises:
        AllPrunedError: the first stage found nothing.
        ValueError: it did not search the learning rate.
    """
    best = first.best
    if best is None:
        raise AllPrunedError(f"all trials of {first.search.label} were pruned; there is no learning rate to transfer.")
    if "learning_rate" not in best.point:
        raise ValueError(f"{first.search.label} did not search the learning rate; there is none to transfer.")
    options = first.search.run_options(best.point)
    rate = float(options.pop("learning_rate"))
    return dataclasses.replace(
        first.search,
        scale=scale,
        options=options,
        trials=trials,
        objective=objective,
        # Another best point is another search: a larger first stage may find one.
        name=f"{first.search.label}/to-{scale.name}-{short_hash(first.search.run_options(best.point))[:8]}",
        space={"learning_rate": Range(rate / FACTOR, rate * FACTOR)},
        first=({"learning_rate": rate},),
    )
