"""A group of metrics: what it wants generated, what it wants judged, and what it records.

`evaluate` asks all groups for their prompts and has them answered in one go, then for their claims and pairs and has
them judged in one go, and then has every group record its values. So nothing is generated or judged twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from atwu.evaluation.panel.session import Session
from atwu.evaluation.prompts import Prompt
from atwu.judge.verdicts import Claim, Pair


class Group:
    """Does nothing by itself; a group overrides what it needs."""

    def __init__(self, session: Session) -> None:
        """Bind the session."""
        self.session = session

    def read(self) -> None:
        """Teacher-forced passes, before anything is generated: what is wrong with rows or weights shows early."""

    def prompts(self) -> Iterable[Prompt]:
        """Prompts to be answered greedily by the model as it is."""
        return ()

    def prepare(self) -> None:
        """Work with the model that is the group's own: altered weights, other decoding, further passes."""

    def claims(self) -> Iterable[Claim]:
        """Answers to be checked."""
        return ()

    def pairs(self) -> Iterable[Pair]:
        """Answers to be compared."""
        return ()

    def record(self) -> None:
        """Record the values of every row."""
