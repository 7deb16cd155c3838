"""Settings of an evaluation: those of all metrics together. They are written into the result."""

from __future__ import annotations

from typing import Any

from atwu.evaluation.panel import all_settings
from atwu.evaluation.settings import Settings


class EvaluateConfig(Settings):
    """How to measure; names, defaults and meanings are those of `atwu.evaluation.panel.all_settings()`.

    The defaults are those of the ATWU paper where it states them.
    """

    def __init__(self, **given: Any) -> None:
        """Take settings by name.

        Raises:
            ValueError: there is no such setting, or its value is not allowed.
        """
        super().__init__(all_settings(), given)

    def changed(self, **changes: Any) -> EvaluateConfig:
        """The same with other values."""
        return EvaluateConfig(**{**self.values, **changes})
