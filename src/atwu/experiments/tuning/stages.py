"""The two stages of the ATWU paper: search everything where runs are cheap, then only the learning rate where they count."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from atwu._cache import short_hash
from atwu.experiments.scales import Scale, find_scale
from atwu.experiments.tuning.search import AllPrunedError, Search, SearchResult
from atwu.methods.options import Range

TRANSFER_TRIALS = 5
FACTOR = 5.0
"""The second stage searches the learning rate from a fifth to five times the first stage's best."""


@dataclass(frozen=True, slots=True)
class TwoStages:
    """What both searches found."""

    first: SearchResult
    """Everything, on the surrogate."""
    second: SearchResult
    """The learning rate, on the scale itself."""


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


def two_stage(
    search: Search,
    run: Callable[[Search], SearchResult],
    *,
    surrogate: Scale | None = None,
    transfer_trials: int = TRANSFER_TRIALS,
) -> TwoStages:
    """Both stages.

    Args:
        search: for the scale itself; its budget is the first stage's.
        run: runs a search, with the models of its scale.
        surrogate: scale of the first stage; None for the one that the scale names, or the scale itself.
        transfer_trials: budget of the second stage.
    """
    cheap = surrogate or (find_scale(search.scale.surrogate) if search.scale.surrogate else search.scale)
    first = run(dataclasses.replace(search, scale=cheap))
    return TwoStages(first, run(second_stage(first, search.scale, trials=transfer_trials, objective=search.objective)))
