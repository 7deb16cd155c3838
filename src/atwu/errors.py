"""What callers may want to catch."""

from __future__ import annotations

import functools
from typing import Any


class AtwuError(RuntimeError):
    """A failure that its message explains; the command line prints the message and nothing else."""


class NonFiniteLossError(AtwuError):
    """The loss became NaN or infinite; the model of the last checkpoint is intact."""


class BudgetReached(AtwuError):  # noqa: N818
    """Nothing more was sent, because it could have cost more than allowed."""

    def __init__(self, *, spent: float, limit: float, unjudged: int) -> None:
        self.spent, self.limit, self.unjudged = spent, limit, unjudged
        super().__init__(
            f"stopped before the limit of USD {limit:.4f} could be passed: USD {spent:.4f} spent, {unjudged} answers "
            f"still unjudged; everything paid for is stored; run again with a higher --max-cost to go on."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), spent=self.spent, limit=self.limit, unjudged=self.unjudged), ()


class DiskFullError(AtwuError, OSError):
    """Nothing more could be written; what was there before is whole."""


class WorkerError(AtwuError):
    """A worker of a study or a search ended with an error."""
