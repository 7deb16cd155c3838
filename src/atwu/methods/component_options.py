"""The numbers and settings that parts of a method take: what each means, its default, and where to search for it.

A part declares them as fields: `beta: float = number(1.0, search=Range(0.1, 5.0), help="...")`. Reading them needs no torch.
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
    """Where a number is searched."""

    low: float
    high: float
    log: bool = True
    """Search on the scale of its logarithm."""
    integer: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            kind = "logarithmic range needs 0 < low <= high" if self.log else "range needs low <= high"
            raise ValueError(f"a {kind}, got {self.low} to {self.high}.")

    def at(self, share: float) -> float:
        """The number at a share of the way from the lowest to the highest, from 0 to 1; all integers are equally far."""
        low, high = (self.low - 0.5, self.high + 0.5) if self.integer else (self.low, self.high)
        return self.clip(low * (high / low) ** share if self.log else low + (high - low) * share)

    def clip(self, value: float) -> float:
        """The closest number inside."""
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.integer else float(inside)


@dataclass(frozen=True, slots=True)
class ComponentOption:
    """One field of a part, as everybody else sees it: configuration, command line, search, `atwu methods`, model card."""

    name: str
    kind: type
    """bool, int, float or str."""
    default: Any
    help: str
    symbol: str = ""
    """As in formulas."""
    search: Range | None = None
    """Where to search; None for what is not searched."""
    positive: bool = False
    """0 makes no sense."""
    least: float = 0.0
    choices: tuple[str, ...] = ()
    number: bool = False
    """A hyperparameter of the method; else a setting of how it is done."""
    strict: bool = False
    """Refused where no part takes it; settings that a whole comparison shares are ignored there."""
    learned: bool = False
    """Only counts under learned weights."""

    def checked(self, value: Any) -> Any:
        """The value as this option's type.

        Raises:
            ValueError: of the wrong type, out of range or not among the choices.
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
        words = f"{self.name} must be a finite number {least}, got {value!r:.80}."
        if isinstance(value, bool):
            raise ValueError(words)
        try:
            found = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(words) from None
        if not (found > self.least if self.positive else found >= self.least) or found == float("inf"):
            raise ValueError(words)
        whole = self.search is not None and self.search.integer if self.number else self.kind is int
        if whole and found != int(found):
            raise ValueError(f"{self.name} must be a whole number, got {value}.")
        return int(found) if self.kind is int and not self.number else found


def number(
    default: float,
    *,
    help: str,
    symbol: str = "",
    search: Range | None = None,
    positive: bool = False,
    learned: bool = False,
) -> Any:
    """Field of a part: a hyperparameter of its formula, finite and >= 0.

    Args:
        default: used unless the method or the user says otherwise.
        help: which way it moves things, in one sentence.
        symbol: as in formulas.
        search: where to search for it; None for a number that is not searched.
        positive: 0 makes no sense.
        learned: it only counts under learned weights.
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
    """Field of a part: how it is done rather than what it computes; ignored by methods that have no use for it.

    Args:
        default: used unless the configuration or the user says otherwise.
        help: what it decides, in one sentence.
        choices: allowed values of a text.
        search: where to search for a number.
        least: smallest allowed number.
        strict: refuse it, rather than ignore it, where no part takes it.
    """
    facts = {"help": help, "choices": tuple(choices), "search": search, "least": least, "strict": strict}
    return dataclasses.field(default=default, metadata={_KEY: facts})


def options_of_component(part: Any) -> tuple[ComponentOption, ...]:
    """The options of a part, class or object, in the order they are declared."""
    return _options_of_class(part if isinstance(part, type) else type(part))


@functools.cache
def _options_of_class(kind: type) -> tuple[ComponentOption, ...]:
    return tuple(
        ComponentOption(field.name, _kind(field), field.default, **field.metadata[_KEY])
        for field in dataclasses.fields(kind)
        if _KEY in field.metadata
    )


def _kind(field: dataclasses.Field[Any]) -> type:
    """Annotations are texts here: `float`, `str | None`, ..."""
    text = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    first = text.split("|")[0].strip()
    return {"bool": bool, "int": int, "float": float, "str": str}[first]
