"""Adding weightings, losses and methods from outside the package.

A package that is installed may register through an entry point of the group `atwu.methods` whose value is a function
without arguments that calls the functions below; it is called before the tables are first read.
"""

from __future__ import annotations

import importlib.metadata
import logging
from typing import Any

from atwu.methods.parts import (
    FORGET_LOSSES,
    RETAIN_LOSSES,
    WEIGHTINGS,
    ForgetLoss,
    RetainLoss,
    Weighting,
)
from atwu.methods.table import METHODS, Method

logger = logging.getLogger(__name__)

ENTRY_POINTS = "atwu.methods"
_loaded = False


def register_weighting(name: str, weighting: Weighting) -> None:
    """Add a token weighting to the table.

    Raises:
        ValueError: the name is taken or unusable.
    """
    _add("weighting", name, weighting, WEIGHTINGS)


def register_forget_loss(name: str, loss: ForgetLoss) -> None:
    """Add a forget loss to the table.

    Raises:
        ValueError: the name is taken or unusable.
    """
    _add("forget loss", name, loss, FORGET_LOSSES)


def register_retain_loss(name: str, loss: RetainLoss) -> None:
    """Add a retain loss to the table.

    Raises:
        ValueError: the name is taken or unusable.
    """
    _add("retain loss", name, loss, RETAIN_LOSSES)


def register_method(name: str, method: Method) -> None:
    """Add a method to the table; its parts must be there already.

    Raises:
        ValueError: the name is taken or unusable, or a part is unknown.
    """
    from atwu.methods.recipe import recipe

    _add("method", name, method, METHODS)
    try:
        recipe(name)
    except ValueError:
        del METHODS[name]
        raise


def _add(kind: str, name: str, entry: Any, table: dict[str, Any]) -> None:
    if not name.isidentifier():
        raise ValueError(f"{kind} names are made of letters, digits and underscores, got {name!r}.")
    if name in table:
        raise ValueError(f"there is a {kind} {name!r} already; choose another name.")
    table[name] = entry


def load_plugins() -> None:
    """Let installed packages register, once; one that fails is named in a warning and left out."""
    global _loaded
    if _loaded:
        return
    _loaded = True  # before the first call: registering a method looks its parts up
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            point.load()()
        except Exception as error:
            logger.warning("entry point %s = %s failed and was left out: %s", point.name, point.value, error)
