"""Register weightings, losses and methods from outside the package (from installed packages: `atwu.methods.plugins`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atwu.methods.component import Component, ForgetLoss, RetainLoss, Weighting
from atwu.methods.component_options import options_of_component
from atwu.methods.components import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS, component_options
from atwu.methods.functions import forget_loss_of, weighting_of
from atwu.methods.method_table import METHODS, Method
from atwu.methods.recipe import recipe


def register_weighting(name: str, weighting: type[Weighting] | Callable[..., Any]) -> None:
    """Add a token weighting: a subclass of `Weighting`, or a plain function (`atwu.methods.functions`).

    Raises:
        ValueError: the name is taken or invalid, or an option has another type in another component.
    """
    made = weighting if isinstance(weighting, type) else weighting_of(weighting)
    _add("weighting", name, made, WEIGHTINGS, Weighting)


def register_forget_loss(name: str, loss: type[ForgetLoss] | Callable[..., Any]) -> None:
    """Add a forget loss: a subclass of `ForgetLoss`, or a plain function (`atwu.methods.functions`).

    Raises:
        ValueError: the name is taken or invalid, or an option has another type in another component.
    """
    made = loss if isinstance(loss, type) else forget_loss_of(loss)
    _add("forget loss", name, made, FORGET_LOSSES, ForgetLoss)


def register_retain_loss(name: str, loss: type[RetainLoss]) -> None:
    """Add a retain loss.

    Raises:
        ValueError: the name is taken or invalid, or an option has another type in another component.
    """
    _add("retain loss", name, loss, RETAIN_LOSSES, RetainLoss)


def register_method(name: str, method: Method) -> None:
    """Add a method whose components are registered already.

    Raises:
        ValueError: the name is taken or invalid, a component is unknown, or no component takes one of the numbers.
    """
    if not isinstance(method, Method):
        raise ValueError(f"a method must be an atwu.Method, got {type(method).__name__}.")
    _check_name("method", name, METHODS)
    METHODS[name] = method
    try:
        recipe(name, **dict[str, Any](method.defaults))
    except BaseException:
        del METHODS[name]
        raise


def _add(kind: str, name: str, component: Any, table: dict[str, Any], base: type[Component]) -> None:
    _check_name(kind, name, table)
    if not (isinstance(component, type) and issubclass(component, base)):
        raise ValueError(f"a {kind} must be a subclass of atwu.{base.__name__}, got {component!r}.")
    known = component_options()
    for option in options_of_component(component):
        other = known.get(option.name)
        if other is not None and (other.kind, other.number) != (option.kind, option.number):
            raise ValueError(
                f"{kind} {name!r}: option {option.name!r} is a {other.kind.__name__} in another component; rename it."
            )
    table[name] = component


def _check_name(kind: str, name: str, table: dict[str, Any]) -> None:
    if not name.isidentifier():
        raise ValueError(f"{kind} names must consist of letters, digits and underscores, got {name!r}.")
    if name in table:
        raise ValueError(f"a {kind} {name!r} is registered already; choose another name.")
