"""Settings of one evaluation run; they are stored in the result."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from atwu._names import did_you_mean
from atwu.evaluation.registry import all_settings


class EvaluateConfig(SimpleNamespace):
    """Settings of one evaluation run; see `atwu.evaluation.registry.all_settings()` for names, defaults and help texts.

    Defaults follow the ATWU paper where it states them.
    """

    def __init__(self, **given: Any) -> None:
        """Set values by name."""
        known = {setting.name: setting for setting in all_settings()}
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known, f" Settings: {', '.join(known)}.")
                raise ValueError(f"unknown evaluation setting {name!r}.{hint}")
        super().__init__(
            **{
                name: setting.value(given[name], strict=True) if name in given else setting.default
                for name, setting in known.items()
            }
        )

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> EvaluateConfig:
        """Create a config from values by command line flag."""
        names = {setting.flag or setting.name: setting.name for setting in all_settings()}
        return cls(**{names[flag]: value for flag, value in flags.items()})

    @property
    def values(self) -> Mapping[str, Any]:
        """All settings by name."""
        return vars(self)
