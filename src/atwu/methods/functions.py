"""Wrap plain functions as components, as in `UnlearnConfig(weighting=my_function)`.

Arguments are passed by name: `logps`, `mask` (both shapes (batch, tokens)) for a weighting; `logps`, `mask`, `weights` and
`ref_logps` for a forget loss. Keyword-only arguments whose default is a number become hyperparameters.
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
    """Return the qualified name and a hash of the source, by which run records identify the function.

    Raises:
        ValueError: the function is a closure or no plain function, or its source cannot be read.
    """
    if not inspect.isfunction(function) or function.__closure__:
        raise ValueError(
            f"{function!r} is not a plain function; define it with def at the top level of a file and pass its numbers "
            "as keyword-only arguments."
        )
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise ValueError(
            f"the source of {function!r} cannot be read ({error}); define it with def in a file."
        ) from None
    if function.__name__ == "<lambda>" and source.count("lambda") > 1:
        raise ValueError(f"{source.strip()!r} contains several lambdas; define each function with def.")
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    return f"{function.__module__}.{function.__qualname__}#{digest}"


def check_same_function(component: type[Component], function: Function) -> None:
    """Reject a function that has the name and source of a registered component but behaves differently.

    Raises:
        ValueError: defaults or module differ.
    """
    first = vars(component)["_function"].__func__
    if first.__globals__ is not function.__globals__ or first.__kwdefaults__ != function.__kwdefaults__:
        raise ValueError(
            f"{function.__qualname__} is registered with the defaults {first.__kwdefaults__}, but now has "
            f"{function.__kwdefaults__} or another module; set the numbers as options, or rename one function."
        )


def weighting_of(function: Function) -> type[Weighting]:
    """Return a weighting class that calls a function of `logps` and `mask`.

    Raises:
        ValueError: the function takes other arguments.
    """
    inputs, numbers = _arguments(function, _WEIGHTING_ARGUMENTS)

    def weights(self: Any, context: WeightingContext) -> Tensor:
        arguments = {name: getattr(context, name) for name in inputs}
        return function(**arguments, **{name: getattr(self, name) for name in numbers})

    return type(function.__name__, (Weighting,), _body(function, numbers) | {"weights": weights})


def forget_loss_of(function: Function) -> type[ForgetLoss]:
    """Return a forget loss class, averaged over tokens, that calls a function of `logps`, `mask`, `weights` and `ref_logps`.

    Raises:
        ValueError: the function takes other arguments.
    """
    inputs, numbers = _arguments(function, _LOSS_ARGUMENTS)

    def values(self: Any, terms: LossTerms, weights: Tensor) -> Tensor:
        arguments = {name: weights if name == "weights" else getattr(terms, name) for name in inputs}
        return function(**arguments, **{name: getattr(self, name) for name in numbers})

    needs = ("reference_logps",) if "ref_logps" in inputs else ()
    body = _body(function, numbers) | {"values": values, "needs": needs}
    return type(function.__name__, (ForgetLoss,), body)


def _arguments(function: Function, allowed: tuple[str, ...]) -> tuple[list[str], dict[str, float]]:
    inputs, numbers = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and isinstance(parameter.default, int | float):
            numbers[name] = float(parameter.default)
        elif name in allowed:
            inputs.append(name)
        else:
            raise ValueError(
                f"{function.__name__} takes {name!r}; allowed arguments are {', '.join(allowed)}, and keyword-only numbers "
                "with a default, which become hyperparameters."
            )
    return inputs, numbers


def _body(function: Function, numbers: dict[str, float]) -> dict[str, Any]:
    text = (inspect.getdoc(function) or function.__name__).splitlines()[0]
    fields = {name: number(default, help=f"hyperparameter of {function.__name__}") for name, default in numbers.items()}
    annotations = dict.fromkeys(numbers, "float")
    own = {"__annotations__": annotations, "__module__": function.__module__, "_function": staticmethod(function)}
    return own | {"formula": text, **fields}
