"""`MetricSetting`: name, type, default, allowed values and help text of one evaluation setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from atwu.data.render import check_system


@dataclass(frozen=True, slots=True)
class MetricSetting:
    """One setting. A tuple as default means a list of values; None as default means that the setting is optional."""

    name: str
    kind: type
    """int, float or str."""
    default: Any
    help: str
    least: float | None = None
    """Smallest allowed number, inclusive."""
    above: float | None = None
    """Lower bound, exclusive."""
    most: float | None = None
    """Largest allowed number, inclusive."""
    choices: tuple[str, ...] = ()
    check: Callable[[Any], None] | None = None
    """Further check; raises ValueError for a value that is not allowed."""
    compared: bool = True
    """Whether it changes the metric's values, so that results with different values are not comparable."""
    flag: str = ""
    """Command line flag, if it differs from the name."""
    metric: str = ""
    """Metric that the setting belongs to; empty for shared settings."""

    @property
    def many(self) -> bool:
        """Whether the setting is a list of values."""
        return isinstance(self.default, tuple)

    def checked(self, value: Any) -> Any:
        """Validate a value and convert it to the setting's type.

        Raises:
            ValueError: Wrong type, out of range, or not among the choices.
        """
        if value is None and self.default is None:
            return None
        if self.many:
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise ValueError(f"{self.name} must be a list of values, got {value!r}.")
            return tuple(self._one(each) for each in value)
        return self._one(value)

    def _one(self, value: Any) -> Any:
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.name} must be one of {', '.join(self.choices)}, got {value!r}.")
        if self.check is not None:
            self.check(value)
        if self.kind is str:
            return str(value)
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{self.name} must be a number, got {value!r:.60}.") from None
        if not math.isfinite(number):
            raise ValueError(f"{self.name} must be a finite number, got {value!r}.")
        if isinstance(value, bool) or (self.kind is int and number != int(number)):
            raise ValueError(f"{self.name} must be a whole number, got {value!r}.")
        low = number if self.least is None else self.least
        if number < low or (self.above is not None and number <= self.above) or number > (self.most or number):
            raise ValueError(f"{self.name} must be {self._allowed}, got {value}.")
        return self.kind(number)

    @property
    def _allowed(self) -> str:
        low = "0 or more" if self.least == 0 else f"at least {self.least:g}" if self.least is not None else ""
        if self.above is not None:
            low = "positive" if self.above == 0 and self.most is None else f"above {self.above:g}"
        return low if self.most is None else f"{low} and at most {self.most:g}"


SHARED_SETTINGS = (
    MetricSetting(
        "max_length",
        int,
        512,
        "Maximum row length in tokens; longer answers are truncated with a warning.",
        least=1,
    ),
    MetricSetting(
        "system",
        str,
        None,
        "System prompt for conversations without one; use the one from training.",
        check=check_system,
    ),
    MetricSetting("max_new_tokens", int, 64, "Maximum number of new tokens per answer.", least=1),
    MetricSetting(
        "batch_tokens",
        int,
        8192,
        "Tokens per batch, for forward passes and generation; changes speed and memory, not results.",
        least=1,
        compared=False,
    ),
    MetricSetting("seed", int, 42, "Random seed for in-context examples, sampling and attacks."),
)
"""Settings shared by all metrics."""
