"""Settings of an evaluation: those of all metrics together. They are written into the result."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from atwu._names import did_you_mean
from atwu.evaluation.registry import all_settings


class EvaluateConfig(SimpleNamespace):
    """How to measure; names, defaults and meanings are those of `atwu.evaluation.registry.all_settings()`, read as attributes.

    The defaults are those of the ATWU paper where it states them.
    """

    def __init__(self, **given: Any) -> None:
        """Take settings by name.

        Raises:
            ValueError: there is no such setting, or its value is not allowed.
        """
        known = {setting.name: setting for setting in all_settings()}
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known, f" There are {', '.join(known)}.")
                raise ValueError(f"an evaluation has no setting {name!r}.{hint}")
        super().__init__(
            **{
                name: setting.checked(given[name]) if name in given else setting.default
                for name, setting in known.items()
            }
        )

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> EvaluateConfig:
        """From values by flag, as the command line has them."""
        names = {setting.flag or setting.name: setting.name for setting in all_settings()}
        return cls(**{names[flag]: value for flag, value in flags.items()})

    @property
    def values(self) -> Mapping[str, Any]:
        """Every setting by name."""
        return vars(self)
