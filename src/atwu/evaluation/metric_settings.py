"""Settings of an evaluation as data: name, kind, default, allowed values, help. Whatever can change a number is one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from atwu.data.render import check_system


@dataclass(frozen=True, slots=True)
class MetricSetting:
    """One setting; a tuple as its default means that it takes several values, None that it may be left out."""

    name: str
    kind: type
    """int, float or str."""
    default: Any
    help: str
    least: float | None = None
    """Smallest allowed number."""
    above: float | None = None
    """Numbers must be larger than this."""
    most: float | None = None
    """Largest allowed number."""
    choices: tuple[str, ...] = ()
    check: Callable[[Any], None] | None = None
    """Raises for values that are refused for another reason."""
    compared: bool = True
    """Whether it changes the numbers of its metric, so that results with different values do not compare."""
    flag: str = ""
    """On the command line, where it is not the name with hyphens."""
    metric: str = ""
    """Name of the metric it belongs to; empty for those of all metrics."""

    @property
    def many(self) -> bool:
        """Whether it takes several values."""
        return isinstance(self.default, tuple)

    def checked(self, value: Any) -> Any:
        """The value as this setting keeps it.

        Raises:
            ValueError: of another kind, out of range or not among the choices.
        """
        if value is None and self.default is None:
            return None
        if self.many:
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise ValueError(f"{self.name} takes several values; give a list, not {value!r}.")
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
    MetricSetting("max_length", int, 512, "Longest row in tokens; longer answers are cut, with a warning.", least=1),
    MetricSetting(
        "system",
        str,
        None,
        "System turn put before conversations that have none, as the model was trained with.",
        check=check_system,
    ),
    MetricSetting("max_new_tokens", int, 64, "Cap on a generated answer.", least=1),
    MetricSetting(
        "batch_tokens",
        int,
        8192,
        "Tokens per batch, read or generated; changes speed and memory, no number.",
        least=1,
        compared=False,
    ),
    MetricSetting("seed", int, 42, "Of demonstrations, draws and attacks."),
)
"""Settings of all metrics."""
