"""`MetricSetting`: name, type, default, allowed values and help text of one evaluation setting."""

from __future__ import annotations

from dataclasses import dataclass

from atwu._options import Option
from atwu.data.render import check_system


@dataclass(frozen=True)
class MetricSetting(Option):
    """One setting."""

    compared: bool = True
    """Whether it changes the metric's values, so that results with different values are not comparable."""
    flag: str = ""
    """Command line flag, if it differs from the name."""
    metric: str = ""
    """Metric that the setting belongs to; empty for shared settings."""


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
