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
    """No more requests were sent, because the limit of calls is reached."""

    def __init__(self, *, limit: int, unjudged: int) -> None:
        self.limit, self.unjudged = limit, unjudged
        super().__init__(
            f"stopped after the {limit} calls of --max-calls: {unjudged} answers are still unjudged. All replies are stored; "
            "run the same command again to continue."
        )

    # Workers pass it on by pickle, which would call the class with the message alone.
    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), limit=self.limit, unjudged=self.unjudged), ()


class DiskFullError(AtwuError, OSError):
    """A file could not be written because the disk is full; files written before are intact."""


class ModelFileError(AtwuError, ValueError):
    """A file of a model, tokenizer, adapter or scorer cannot be read, or has values that cannot be meant."""


class WorkerError(AtwuError):
    """A worker process of a study or search failed."""
