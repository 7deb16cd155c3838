"""A metric: what it needs, what it wants generated and judged, and what it records. One file in `metrics/` is one metric.

`evaluate` asks all metrics for their prompts and has them answered in one go, then for their claims and pairs and has
them judged in one go, and then has every metric record its values. So nothing is generated or judged twice. Metrics are
listed without torch: their files import what is heavy inside functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from atwu.evaluation.columns import Column
from atwu.evaluation.metric_settings import MetricSetting

if TYPE_CHECKING:
    from atwu.data.schema import Example
    from atwu.evaluation.evaluate_config import EvaluateConfig
    from atwu.evaluation.generations import Prompt
    from atwu.evaluation.result import EvalResult
    from atwu.evaluation.row_statistics import AggregateMetric, ModelComparison
    from atwu.evaluation.session import Session
    from atwu.judge.verdicts import Claim, Pair


class Metric:
    """A metric overrides what it needs; the base class measures nothing."""

    name: ClassVar[str] = ""
    """As `--metrics` and the settings of a result call it."""
    about: ClassVar[str]
    """What it measures, in a few words."""
    cost: ClassVar[str] = ""
    """What it takes, in a few words."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Sets without which there is nothing to measure."""
    needs_weights: ClassVar[bool] = True
    """Whether generations alone are not enough."""
    needs_plain_weights: ClassVar[bool] = False
    """Whether it changes weights or takes their gradients, which weights stored in 4 or 8 bits do not allow."""
    needs_moments: ClassVar[bool] = False
    """Whether it reads the variance of log-probabilities under teacher forcing."""
    default: ClassVar[bool] = False
    """Measured when no metrics are named, as far as its rows are given."""
    judged: ClassVar[bool] = False
    """Asks the judge."""
    attack: ClassVar[bool] = False
    """Tells what an attack or an adversarial question brings back."""
    runs_on_references: ClassVar[bool] = True
    """Also asked of models that are only compared with."""
    settings: ClassVar[tuple[MetricSetting, ...]] = ()
    """Its own settings."""
    uses: ClassVar[tuple[str, ...]] = ()
    """Settings of others that change its numbers."""
    columns: ClassVar[tuple[Column, ...]] = ()
    """Everything it records or derives."""
    needs_reference: ClassVar[tuple[str, str] | None] = None
    """Model that it compares with, `original` or `retain-only`, and what is missing without that one's numbers."""
    reference_metrics: ClassVar[tuple[str, ...]] = ()
    """Metrics of that model which are compared with; its own if empty."""

    def __init__(self, session: Session) -> None:
        """Bind the session."""
        self.session = session

    @classmethod
    def own_rows(cls) -> Mapping[str, Sequence[Example]]:
        """Sets of rows that the metric brings itself, by name."""
        return {}

    @classmethod
    def check(cls, config: EvaluateConfig) -> None:
        """Whether what it takes is installed; asked before anything is spent.

        Raises:
            ImportError: it is not; names how to install it.
        """

    def read(self) -> None:
        """Teacher-forced passes, before anything is generated: what is wrong with rows or weights shows early."""

    def prompts(self) -> Iterable[Prompt]:
        """Prompts to be answered greedily by the model as it is."""
        return ()

    def prepare(self) -> None:
        """Work with the model that is the metric's own: altered weights, other decoding, further passes."""

    def claims(self) -> Iterable[Claim]:
        """Answers to be checked."""
        return ()

    def pairs(self) -> Iterable[Pair]:
        """Answers to be compared."""
        return ()

    def record(self) -> None:
        """Record the values of every row with `record_column`."""

    def record_column(self, split: str, name: str, values: Sequence[float | None], *, unscored: int = 0) -> None:
        """Record one value per row of a set under one of the metric's columns.

        Args:
            values: one per row, None where there is none.
            unscored: answers without a readable verdict.

        Raises:
            ValueError: no column of the metric has this name.
        """
        from atwu.evaluation.row_statistics import Recorded

        column = next((column for column in self.columns if column.field(name) is not None), None)
        if column is None:
            raise ValueError(f"metric {self.name} records {name!r}, which none of its columns has.")
        kept = tuple(None if value is None else float(value) for value in values)
        found = Recorded(kept, column.direction_on(split), unscored, column.digits, column.shown)
        self.session.recorded.setdefault(split, {})[name] = found

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Numbers that need several sets or a second model, by name, from row values."""
        return iter(())

    @classmethod
    def warnings(cls, result: EvalResult, original: EvalResult | None) -> Iterator[str]:
        """One sentence for everything about its numbers that a reader must not overlook."""
        return iter(())
