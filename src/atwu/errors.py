"""Exceptions that callers may want to catch."""

from __future__ import annotations

import functools
from typing import Any


class AtwuError(RuntimeError):
    """A failure with a complete message; the command line prints only the message."""


class UsageError(ValueError):
    """Invalid arguments; a command ends with exit code 2."""


class NonFiniteLossError(AtwuError):
    """The loss became NaN or infinite; the last checkpoint is intact."""


class BudgetReachedError(AtwuError):
    """No more requests were sent, because the next one could exceed the cost limit."""

    def __init__(self, *, spent: float, limit: float, unjudged: int) -> None:
        self.spent, self.limit, self.unjudged = spent, limit, unjudged
        super().__init__(
            f"stopped because the next request could exceed the limit of USD {limit:.4f}: USD {spent:.4f} spent, "
            f"{unjudged} answers still unjudged. All paid replies are stored; run again with a higher --max-cost to "
            "continue."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), spent=self.spent, limit=self.limit, unjudged=self.unjudged), ()


class DiskFullError(AtwuError, OSError):
    """A file could not be written because the disk is full; files written before are intact."""


class ModelFileError(AtwuError, ValueError):
    """A file of a model, tokenizer, adapter or scorer cannot be read, or has values that cannot be meant."""


class WorkerError(AtwuError):
    """A worker process of a study or search failed."""
