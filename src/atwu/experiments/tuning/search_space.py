"""Search space and first points of a method, from the method table."""

from __future__ import annotations

from typing import Any

from atwu.methods.component import Range, options_of_component
from atwu.methods.method_table import METHODS, Method
from atwu.methods.recipe import Recipe, recipe, split_weighting

_UNKNOWN = Method("", "", "", "", "")
"""Method that defines the ranges of a component that no method of the table uses."""


def search_space(
    method: str, *, learning_rate: tuple[float, float], layers: int | None = None, **parts: Any
) -> dict[str, Range]:
    """Return the searched options with their ranges, the learning rate first.

    An option of a component is searched if the methods with that component search it. So `npo` with another forget loss
    does not search NPO's beta.

    Args:
        learning_rate: lowest and highest learning rate, which depend on model and benchmark.
        layers: number of decoder layers, for RMU's layer index; None for models with at least 13.
        parts: weighting, forget_loss and retain_loss that replace the method's.
    """
    decided = recipe(method, **parts)
    space = {"learning_rate": Range(*learning_rate)}
    for name, option in decided.options.items():
        where = _owner(name, METHODS[method], decided).search.get(name, option.search)
        if where is not None:
            space[name] = _inside(where, layers) if name == "layer" and layers is not None else where
    return space


def first_points(method: str, *, learning_rate: float, **parts: Any) -> list[dict[str, float]]:
    """Return the first points of a search: the first trial of the published search, then its best values.

    Numbers that the published first trial does not set have their defaults; `Search.decided` clips those outside their
    range. Arguments are those of `search_space`.
    """
    decided = recipe(method, **parts)
    row = METHODS[method]
    searched = search_space(method, learning_rate=(learning_rate, learning_rate), **parts)
    owners = {name: _owner(name, row, decided) for name, option in decided.options.items() if name in searched}
    return [
        {"learning_rate": learning_rate}
        | {name: getattr(owner, kind).get(name, decided.options[name].default) for name, owner in owners.items()}
        for kind in (("first_trial", "defaults") if row.first_trial else ("defaults",))
    ]


def _owner(name: str, row: Method, decided: Recipe) -> Method:
    """Return the method that defines an option: `row`, unless the component with this option was replaced."""
    owners = (each for each in (row, *METHODS.values()) if _shares(name, each, decided))
    return next(owners, _UNKNOWN)


def _shares(name: str, row: Method, decided: Recipe) -> bool:
    if any(option.name == name for option in options_of_component(decided.forget_component)):
        return row.forget_loss == decided.forget_loss
    named = zip(decided.weighting_names, decided.weighting_components, strict=True)
    weightings = [part for part, made in named if any(option.name == name for option in options_of_component(made))]
    # Loss weights belong to the method itself.
    return not weightings or bool(set(weightings) & set(split_weighting(row.weighting)[0]))


def _inside(where: Range, layers: int) -> Range:
    """Restrict a range of layers to a smaller model; all its layers if the range starts after the last."""
    last = layers - 1
    return Range(where.low if where.low <= last else 0, min(where.high, last), log=False, integer=True)
