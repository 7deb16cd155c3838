"""Plain functions as parts: what `UnlearnConfig(weighting=my_function)` makes of it.

Arguments are taken by name: `logps`, `mask` (both shapes (batch, tokens)) for a weighting; `logps`, `mask`, `weights` and
`ref_logps` for a forget loss. Keyword-only arguments with a number as default are hyperparameters.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from atwu.methods.component import Component, ForgetLoss, Weighting
from atwu.methods.component_inputs import LossTerms, WeightingContext
from atwu.methods.component_options import number

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[..., "Tensor"]
_WEIGHTING_ARGUMENTS = ("logps", "mask")
_LOSS_ARGUMENTS = ("logps", "mask", "weights", "ref_logps")


def function_id(function: Function) -> str:
    """Qualified name and the first digits of its source's hash, by which runs record it.

    Raises:
        ValueError: it is more than its source, or the source cannot be read.
    """
    if not inspect.isfunction(function) or function.__closure__:
        raise ValueError(
            f"{function!r} holds values that its source does not show; write it with def at the top of a file, its numbers "
            "as keyword-only arguments."
        )
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise ValueError(
            f"the source of {function!r} cannot be read ({error}); define it with def in a file."
        ) from None
    if function.__name__ == "<lambda>" and source.count("lambda") > 1:
        raise ValueError(f"{source.strip()!r} holds several functions without a name; define each with def.")
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    return f"{function.__module__}.{function.__qualname__}#{digest}"


def check_same_function(part: type[Component], function: Function) -> None:
    """Refuse a function of the same name and source as one that is a part already, which would do something else.

    Raises:
        ValueError: its defaults or its module are others.
    """
    first = vars(part)["_function"].__func__
    if first.__globals__ is not function.__globals__ or first.__kwdefaults__ != function.__kwdefaults__:
        raise ValueError(
            f"{function.__qualname__} was given before with the defaults {first.__kwdefaults__} and now has "
            f"{function.__kwdefaults__}, in a module of its name; give the numbers by name, or call one otherwise."
        )


def weighting_of(function: Function) -> type[Weighting]:
    """The weighting that calls a function of `logps` and `mask`.

    Raises:
        ValueError: it takes something else.
    """
    asked, numbers = _arguments(function, _WEIGHTING_ARGUMENTS)

    def weights(self: Any, seen: WeightingContext) -> Tensor:
        given = {name: getattr(seen, name) for name in asked}
        return function(**given, **{name: getattr(self, name) for name in numbers})

    return type(function.__name__, (Weighting,), _body(function, numbers) | {"weights": weights})


def forget_loss_of(function: Function) -> type[ForgetLoss]:
    """The forget loss, averaged over tokens, that calls a function of `logps`, `mask`, `weights` and `ref_logps`.

    Raises:
        ValueError: it takes something else.
    """
    asked, numbers = _arguments(function, _LOSS_ARGUMENTS)

    def values(self: Any, terms: LossTerms, weights: Tensor) -> Tensor:
        given = {name: weights if name == "weights" else getattr(terms, name) for name in asked}
        return function(**given, **{name: getattr(self, name) for name in numbers})

    needs = ("reference_logps",) if "ref_logps" in asked else ()
    body = _body(function, numbers) | {"values": values, "needs": needs}
    return type(function.__name__, (ForgetLoss,), body)


def _arguments(function: Function, allowed: tuple[str, ...]) -> tuple[list[str], dict[str, float]]:
    asked, numbers = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and isinstance(parameter.default, int | float):
            numbers[name] = float(parameter.default)
        elif name in allowed:
            asked.append(name)
        else:
            raise ValueError(
                f"{function.__name__} takes {name!r}; a function may take {', '.join(allowed)}, and keyword-only numbers "
                "with a default, which become hyperparameters."
            )
    return asked, numbers


def _body(function: Function, numbers: dict[str, float]) -> dict[str, Any]:
    text = (inspect.getdoc(function) or function.__name__).splitlines()[0]
    fields = {name: number(default, help=f"of {function.__name__}") for name, default in numbers.items()}
    annotations = dict.fromkeys(numbers, "float")
    own = {"__annotations__": annotations, "__module__": function.__module__, "_function": staticmethod(function)}
    return own | {"formula": text, **fields}
