"""Hyperparameters and settings of components: meaning, default and search range.

A component declares them as fields: `beta: float = number(1.0, search=Range(0.1, 5.0), help="...")`. Importing this module
does not import torch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_KEY = "atwu"


@dataclass(frozen=True, slots=True)
class Range:
    """Search range of a number."""

    low: float
    high: float
    log: bool = True
    """Whether the search is uniform in the logarithm."""
    integer: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            kind = "logarithmic range needs 0 < low <= high" if self.log else "range needs low <= high"
            raise ValueError(f"a {kind}, got {self.low} to {self.high}.")

    def at(self, share: float) -> float:
        """Map a share in [0, 1] to a number of the range; in integer ranges every integer gets an equal share."""
        low, high = (self.low - 0.5, self.high + 0.5) if self.integer else (self.low, self.high)
        return self.clip(low * (high / low) ** share if self.log else low + (high - low) * share)

    def clip(self, value: float) -> float:
        """Return the closest number inside the range."""
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.integer else float(inside)


@dataclass(frozen=True, slots=True)
class ComponentOption:
    """One option of a component, as used by configuration, command line, search, `atwu methods` and model card."""

    name: str
    kind: type
    """bool, int, float or str."""
    default: Any
    help: str
    symbol: str = ""
    """Symbol in formulas."""
    search: Range | None = None
    """Search range; None if it is not searched."""
    positive: bool = False
    """Whether 0 is rejected."""
    least: float = 0.0
    choices: tuple[str, ...] = ()
    number: bool = False
    """True for a hyperparameter of the formula, False for a setting of the procedure."""
    strict: bool = False
    """Whether setting it is an error if no component of the method uses it; other settings are then ignored."""
    learned: bool = False
    """Whether it only has an effect with learned weights."""

    def checked(self, value: Any) -> Any:
        """Convert a value to the type of this option.

        Raises:
            ValueError: the value has the wrong type, is out of range or is not one of the choices.
        """
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.name} must be one of {', '.join(self.choices)}, got {value!r}.")
        if self.kind is str or value is None:
            return value if value is None else str(value)
        if self.kind is bool:
            if not isinstance(value, bool):
                raise ValueError(f"{self.name} must be true or false, got {value!r}.")
            return value
        least = f"> {self.least:g}" if self.positive else f">= {self.least:g}"
        message = f"{self.name} must be a finite number {least}, got {value!r:.80}."
        if isinstance(value, bool):
            raise ValueError(message)
        try:
            converted = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(message) from None
        if not (converted > self.least if self.positive else converted >= self.least) or converted == float("inf"):
            raise ValueError(message)
        integer = self.search is not None and self.search.integer if self.number else self.kind is int
        if integer and converted != int(converted):
            raise ValueError(f"{self.name} must be a whole number, got {value}.")
        return int(converted) if self.kind is int and not self.number else converted


def number(
    default: float,
    *,
    help: str,
    symbol: str = "",
    search: Range | None = None,
    positive: bool = False,
    learned: bool = False,
) -> Any:
    """Declare a hyperparameter of a component's formula: a finite number >= 0.

    Args:
        default: value unless the method or the user sets another.
        help: its effect, in one sentence.
        symbol: symbol in formulas.
        search: search range; None if it is not searched.
        positive: whether 0 is rejected.
        learned: whether it only has an effect with learned weights.
    """
    facts = {"help": help, "symbol": symbol, "search": search, "positive": positive, "learned": learned}
    return dataclasses.field(default=default, metadata={_KEY: facts | {"number": True, "strict": True}})


def setting(
    default: Any,
    *,
    help: str,
    choices: Sequence[str] = (),
    search: Range | None = None,
    least: float = 0.0,
    strict: bool = False,
) -> Any:
    """Declare a setting of a component's procedure; methods that do not use it ignore it.

    Args:
        default: value unless the configuration or the user sets another.
        help: what it controls, in one sentence.
        choices: allowed values.
        search: search range of a number.
        least: smallest allowed number.
        strict: raise an error, instead of ignoring it, if no component of the method uses it.
    """
    facts = {"help": help, "choices": tuple(choices), "search": search, "least": least, "strict": strict}
    return dataclasses.field(default=default, metadata={_KEY: facts})


def options_of_component(component: Any) -> tuple[ComponentOption, ...]:
    """Return the options of a component (class or instance) in the order of declaration."""
    return _options_of_class(component if isinstance(component, type) else type(component))


@functools.cache
def _options_of_class(kind: type) -> tuple[ComponentOption, ...]:
    return tuple(
        ComponentOption(field.name, _kind(field), field.default, **field.metadata[_KEY])
        for field in dataclasses.fields(kind)
        if _KEY in field.metadata
    )


def _kind(field: dataclasses.Field[Any]) -> type:
    """Return the type of a field from its annotation, which is a string such as `float` or `str | None`."""
    text = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    first = text.split("|")[0].strip()
    return {"bool": bool, "int": int, "float": float, "str": str}[first]
