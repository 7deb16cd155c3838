"""Base class of metrics and of their settings. The files in `metrics/` define the metrics.

A metric records several columns; documents and studies also call it a group of metrics, and its columns metrics.

`evaluate` collects the prompts of all metrics and generates their answers in one pass. It then collects their claims
and pairs, has the judge rate them in one pass, and lets every metric record its values. No answer is generated or
judged twice. Listing metrics does not import torch: their files import heavy packages inside functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

from atwu._options import Option
from atwu.data.render import check_system
from atwu.evaluation.columns import Column

if TYPE_CHECKING:
    from atwu.data.schema import Example
    from atwu.evaluation.generations import Prompt
    from atwu.evaluation.intervals import AggregateMetric
    from atwu.evaluation.result import EvalResult
    from atwu.evaluation.row_statistics import ModelComparison
    from atwu.evaluation.session import Session
    from atwu.judge.verdicts import Claim, Pair


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
        "max_length", int, 512, "Maximum row length in tokens; longer answers are truncated with a warning.", least=1
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


class Metric:
    """Base class of metrics; subclasses override the hooks they need."""

    name: ClassVar[str] = ""
    """Name in `--metrics` and in the settings of a result."""
    about: ClassVar[str]
    """One-line description, shown by `atwu evaluate --list`."""
    cost: ClassVar[str] = ""
    """Cost in model passes, answers and judge calls."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Sets that are required."""
    needs_weights: ClassVar[bool] = True
    """Whether it needs the model's weights; False if generated answers are enough."""
    needs_plain_weights: ClassVar[bool] = False
    """Whether it changes weights or takes gradients, which 4-bit and 8-bit weights do not support."""
    needs_moments: ClassVar[bool] = False
    """Whether it reads the variance of token log-probabilities."""
    default: ClassVar[bool] = False
    """Whether it runs when no metrics are named and its sets are given."""
    judged: ClassVar[bool] = False
    """Whether it calls the judge."""
    attack: ClassVar[bool] = False
    """Whether it measures an attack or adversarial questions."""
    needs_reference_models: ClassVar[bool] = False
    """Whether it computes with the weights of the original and the retain-only model."""
    runs_on_references: ClassVar[bool] = True
    """Whether it also runs on the reference models (original and retain-only)."""
    settings: ClassVar[tuple[MetricSetting, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()
    """Shared settings, and settings of other metrics, that change its values."""
    columns: ClassVar[tuple[Column, ...]] = ()
    """Columns that it records or derives."""
    needs_reference: ClassVar[tuple[str, str] | None] = None
    """(reference model, what needs it): `original` or `retain-only`, and the values that are missing without its
    result."""
    reference_metrics: ClassVar[tuple[str, ...]] = ()
    """Metrics required in the reference result; empty: this metric."""

    def __init__(self, session: Session) -> None:
        """Store the session."""
        self.session = session

    @classmethod
    def own_rows(cls) -> Mapping[str, Sequence[Example]]:
        """Return the sets of rows that ship with the metric, by name."""
        return {}

    @classmethod
    def check(cls, config: SimpleNamespace) -> None:
        """Check that required packages are installed, before any work starts."""

    def read(self) -> None:
        """Run teacher-forced passes. They precede generation, so that bad rows or weights fail early."""

    def prompts(self) -> Iterable[Prompt]:
        """Return prompts to be answered greedily by the unchanged model."""
        return ()

    def prepare(self) -> None:
        """Do work that is specific to the metric: altered weights, other decoding, further passes."""

    def claims(self) -> Iterable[Claim | None]:
        """Return the answers to be judged; None where a server gave none."""
        return ()

    def pairs(self) -> Iterable[Pair | None]:
        """Return the pairs of answers to be compared; None where a server gave none."""
        return ()

    def record(self) -> None:
        """Record the values of every row with `record_column`."""

    def record_column(self, split: str, name: str, values: Sequence[float | None], *, unscored: int = 0) -> None:
        """Record one value per row of a set in one of the metric's columns.

        Args:
            values: One value per row; None where undefined.
            unscored: Number of answers without a readable verdict.

        Raises:
            ValueError: No column of the metric has this name.
        """
        from atwu.evaluation.row_statistics import ColumnValues

        column = next((column for column in self.columns if column.field(name) is not None), None)
        if column is None:
            raise ValueError(f"metric {self.name} records {name!r}, but none of its columns has this name.")
        row_values = tuple(None if value is None else float(value) for value in values)
        recorded = ColumnValues(
            row_values, column.direction_on(split), unscored, column.digits, column.shown, column.range
        )
        self.session.recorded.setdefault(split, {})[name] = recorded

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Yield (name, value) of columns that need several sets or a reference model; here, of those with `of`."""
        for column in cls.columns:
            if found := sides.this.derived(column.formula, column.of):
                yield column.name, found

    @classmethod
    def warnings(cls, result: EvalResult, original: EvalResult | None) -> Iterator[str]:
        """Yield one sentence for each caveat about the metric's values."""
        return iter(())
