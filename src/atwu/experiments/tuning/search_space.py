"""What is searched for a method, and where the search starts: ranges and first points from the method table."""

from __future__ import annotations

from typing import Any

from atwu.methods.component_options import Range, options_of_component
from atwu.methods.method_table import METHODS, Method
from atwu.methods.recipe import Recipe, recipe, split_weighting

_UNKNOWN = Method("", "", "", "", "")
"""Owner of the numbers of a part that no method of the table has."""


def search_space(
    method: str, *, learning_rate: tuple[float, float], layers: int | None = None, **parts: Any
) -> dict[str, Range]:
    """The options that are searched, with their ranges.

    A number that belongs to a part is searched where the methods with that part search it, so `npo` under another forget
    loss does not keep NPO's beta.

    Args:
        method: a name from `METHODS`.
        learning_rate: lowest and highest learning rate, which depends on model and benchmark.
        layers: decoder layers of the model, where RMU's may be; None for models of at least 13.
        parts: weighting, forget_loss and retain_loss in place of the method's.

    Returns:
        Option of `UnlearnConfig` -> range, in the order learning_rate, forget_weight, retain_weight, the rest.

    Raises:
        ValueError: unknown names, or parts that do not go together.
    """
    decided = recipe(method, **parts)
    space = {"learning_rate": Range(*learning_rate)}
    for name, option in decided.options.items():
        where = _owner(name, METHODS[method], decided).search.get(name, option.search)
        if where is not None:
            space[name] = _inside(where, layers) if name == "layer" and layers is not None else where
    return space


def first_points(method: str, *, learning_rate: float, **parts: Any) -> list[dict[str, float]]:
    """The points that a search begins with: the first trial of the published search, then the values tuned by it.

    Numbers that the published first trial leaves open are at their defaults; `Search.decided` moves those outside their range
    to its end. Arguments are those of `search_space`.

    Returns:
        One or two points with a number for every option of `search_space`.

    Raises:
        ValueError: unknown names, or parts that do not go together.
    """
    decided = recipe(method, **parts)
    row = METHODS[method]
    searched = search_space(method, learning_rate=(learning_rate, learning_rate), **parts)
    owners = {name: _owner(name, row, decided) for name, option in decided.options.items() if name in searched}
    return [
        {"learning_rate": learning_rate}
        | {name: getattr(owner, kind).get(name, decided.options[name].default) for name, owner in owners.items()}
        for kind in (("first", "defaults") if row.first_trial else ("defaults",))
    ]


def _owner(name: str, row: Method, decided: Recipe) -> Method:
    """The method whose number of that name is meant: `row` itself unless the part that takes it was replaced."""
    owners = (each for each in (row, *METHODS.values()) if _shares(name, each, decided))
    return next(owners, _UNKNOWN)


def _shares(name: str, row: Method, decided: Recipe) -> bool:
    if any(option.name == name for option in options_of_component(decided.forgetter)):
        return row.forget_loss == decided.forget_loss
    named = zip(decided.weighting_names, decided.weighters, strict=True)
    weightings = [part for part, made in named if any(option.name == name for option in options_of_component(made))]
    # The weights belong to the method itself.
    return not weightings or bool(set(weightings) & set(split_weighting(row.weighting)[0]))


def _inside(where: Range, layers: int) -> Range:
    """A range of layers for a model with fewer: what is left of it, or all layers if it begins behind the last."""
    last = layers - 1
    return Range(where.low if where.low <= last else 0, min(where.high, last), log=False, integer=True)
