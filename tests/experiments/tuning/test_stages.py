"""Two stages: all hyperparameters on the surrogate, then only the learning rate on the setting itself."""

from __future__ import annotations

import dataclasses

import pytest

from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.tuning.sampler import FinishedTrial
from atwu.experiments.tuning.search import Search, SearchResult
from atwu.experiments.tuning.tune_methods import second_stage
from atwu.methods.component import Range

SMALL, TINY = find_setting("people-small"), find_setting("people-tiny")


def found(search: Search) -> SearchResult:
    """A search whose second trial is the best."""
    decided = search.decided()
    point = {name: where.clip(2e-3) for name, where in (decided.space or {}).items()}
    return SearchResult(decided, (FinishedTrial(0, point, 0.1, 1.0), FinishedTrial(1, point, 0.9, 1.0)))


def test_second_stage_searches_the_learning_rate_around_the_first_and_fixes_the_rest():
    first = found(Search("atwu", TINY, {"rho": 0.3}, trials=7, seed=4))
    assert first.search.space is not None
    assert first.search.space.keys() == {
        *("learning_rate", "forget_weight", "retain_weight", "beta", "scorer_learning_rate")
    }
    second = second_stage(first, SMALL, trials=3).decided()
    assert (second.setting, second.trials, second.seed) == (SMALL, 3, 4)
    assert second.label.startswith("people-tiny/atwu/to-people-small-")
    assert second.space == {"learning_rate": Range(2e-3 / 5, 2e-3 * 5)}
    assert list(second.first or ()) == [{"learning_rate": 2e-3}]
    assert dict(second.options) == {
        "rho": 0.3,
        "forget_weight": 0.1,
        "retain_weight": 0.1,
        "beta": 1.0,
        "scorer_learning_rate": 0.01,
    }


def test_layers_stay_whole_numbers():
    search = Search("rmu", TINY).decided(2)
    assert search.space is not None
    best = {name: where.clip(1.0) for name, where in search.space.items()}
    second = second_stage(SearchResult(search, (FinishedTrial(0, best, 1.0, 1.0),)), SMALL)
    assert isinstance(second.options["layer"], int)


def test_a_transfer_needs_a_best_trial_and_a_searched_learning_rate():
    search = Search("grad_diff", TINY).decided()
    with pytest.raises(ValueError, match=r"people-tiny/grad_diff.*pruned"):
        second_stage(SearchResult(search, (FinishedTrial(0, {"learning_rate": 1e-3}, None, 1.0),)), SMALL)
    fixed = dataclasses.replace(search, options={"learning_rate": 1e-3}).decided()
    with pytest.raises(ValueError, match="learning rate"):
        second_stage(SearchResult(fixed, (FinishedTrial(0, {"forget_weight": 1.0}, 0.5, 1.0),)), SMALL)
