"""Base class of metrics and of their settings. The files in `metrics/` define the metrics.

A metric records several columns; documents and studies also call it a group of metrics, and its columns metrics.

`evaluate` collects the prompts of all metrics and generates their answers in one pass. It then collects their claims
and pairs, has the judge rate them in one pass, and lets every metric record its values. No answer is generated or
judged twice. Listing metrics does not import torch: their files import heavy packages inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from atwu._options import Option
from atwu.data.render import check_system
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET_OR_RETAIN, Column, apply_known
from atwu.evaluation.generations import Decoding, Prompt
from atwu.judge.verdicts import Claim, Pair

if TYPE_CHECKING:
    from atwu.benchmarks.base import Probe
    from atwu.evaluation.intervals import AggregateMetric, ModelComparison  # needs numpy, which --help does without
    from atwu.evaluation.result import EvalResult
    from atwu.evaluation.session import Session
    from atwu.evaluation.teacher_forced import TokenRow

Claims: TypeAlias = Sequence[Claim | None]
"""The answers of one row; None where a server gave none."""
Verdicts: TypeAlias = Sequence[bool | None]
"""Verdicts on them; None if unscored."""
JudgedColumn: TypeAlias = tuple[str, str, Callable[[Verdicts], float | None], Sequence[Claims]]
"""Set, column, formula of the verdicts of a row, and the claims of every row."""


@dataclass(frozen=True)
class MetricSetting(Option):
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
    # The length of the ATWU authors' last configurations, and below their seed, which their judge has, too.
    MetricSetting("max_new_tokens", int, 64, "Maximum number of new tokens per answer.", least=1),
    MetricSetting(
        "batch_tokens",
        int,
        16384,
        "Tokens per batch, for forward passes and generation; changes speed and memory, and in half precision single answers.",
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
    needs_reference_models: ClassVar[bool] = False
    """Whether it computes with the weights of the original and the retain-only model."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Sets whose rows it reads teacher-forced; `FORGET_OR_RETAIN` stands for the forget set and every retain set."""
    asks: ClassVar[bool] = False
    """Whether it needs the model's answer to each row's own question."""
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
        self.session = session

    @classmethod
    def own_rows(cls, config: SimpleNamespace) -> Mapping[str, Sequence[Example]]:
        """Return the sets of rows that the metric brings along, by name."""
        return {}

    @classmethod
    def check(cls, config: SimpleNamespace) -> None:
        """Check that required packages are installed, before any work starts."""

    def read(self) -> None:
        """Run teacher-forced passes. They precede generation, so that bad rows or weights fail early."""
        for split in self.sets_read:
            self.session.tokens(split)

    def prompts(self) -> Iterable[Prompt]:
        """Return prompts to be answered greedily by the unchanged model."""
        if self.asks:
            return self.session.question_prompts
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
        """Record the values of every row, with one of the methods below."""

    @property
    def sets_read(self) -> tuple[str, ...]:
        if FORGET_OR_RETAIN in self.reads:
            return tuple(self.session.forget_and_retain_sets)
        return self.reads

    def record_tokens(self, **formulas: Callable[[Example, TokenRow], float | None]) -> None:
        """Record columns that are computed from a row and its teacher-forced outputs, for the sets in `reads`."""
        for split in self.sets_read:
            for name, formula in formulas.items():
                self.record_column(split, name, map(formula, self.session.sets[split], self.session.tokens(split)))

    def record_answers(self, **formulas: Callable[[Example, str], float | None]) -> None:
        """Record columns that are computed from a row and the answer to its own question, for sets of questions."""
        for split, rows in self.session.forget_and_retain_sets.items():
            if not any(row.messages for row in rows):
                continue
            for name, formula in formulas.items():
                self.record_column(split, name, self.session.score_answers(split, formula))

    def record_column(self, split: str, name: str, values: Iterable[float | None], *, unscored: int = 0) -> None:
        """Record one value per row of a set in one of the metric's columns.

        Args:
            values: One value per row; None where undefined.
            unscored: Number of answers without a readable verdict.

        Raises:
            ValueError: No column of the metric has this name on this set.
        """
        # A number without a column has no meaning, direction and range to be shown with.
        if not any(column.on(split) and column.field(name) is not None for column in self.columns):
            raise ValueError(f"metric {self.name} records {name!r} on {split!r}, but has no column of this name there.")
        rows = self.session.rows[split]
        rows.metrics[name] = tuple(apply_known(float, values))
        if unscored:
            rows.unscored[name] = unscored

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Yield (name, value) of columns that need several sets or a reference model; here, of those with `of`."""
        for column in cls.columns:
            derived = sides.this.apply_formula(column.formula, column.of)
            if derived is not None:
                yield column.name, derived

    @classmethod
    def warnings(cls, result: EvalResult, original: EvalResult | None) -> Iterator[str]:
        """Yield one sentence for each caveat about the metric's values."""
        return iter(())


class JudgedMetric(Metric):
    """Base class of metrics of several judged answers per row, such as those to paraphrases."""

    needs_weights = False
    judged = True

    def judged_columns(self) -> Iterator[JudgedColumn]:
        """Yield every column that is a share of a row's answers, in percent."""
        raise NotImplementedError

    def claims(self) -> Iterator[Claim | None]:
        # Generated anew for each call: claims are collected before, and verdicts read after they are judged.
        return (claim for *_, rows in self.judged_columns() for row in rows for claim in row)

    def record(self) -> None:
        for column in self.judged_columns():
            self.record_judged(column)

    def record_judged(self, column: JudgedColumn) -> None:
        """Record the values of one column, once its claims are judged."""
        split, name, formula, rows = column
        verdicts = [[self.session.verdict(claim) for claim in row] for row in rows]
        percent = apply_known(lambda share: 100 * share, map(formula, verdicts))
        self.record_column(split, name, percent, unscored=sum(row.count(None) for row in verdicts))


class ProbeMetric(Metric):
    """Base class of metrics of a benchmark's own prompts, of which each kind has its columns."""

    def prompt(self, probe: Probe) -> Prompt:
        return Prompt(probe.messages, prefill=probe.opening)

    def answer_probes(self, kinds: Collection[str], decoding: Decoding, *, label: str) -> list[str | None]:
        """Return the answer to every probe; None for those of other kinds or where a server gave none."""
        prompts = [self.prompt(probe) if probe.kind in kinds else None for probe in self.session.benchmark_probes]
        asked = [prompt for prompt in prompts if prompt is not None]
        said = self.session.generate(asked, label=label, decoding=decoding)
        return apply_known(said.get, prompts)

    def record_kind(self, kind: str, column: str, values: Sequence[float | None]) -> None:
        """Record the values of one kind of probes, None for others, so that all kinds share resampled subjects."""
        pairs = zip(self.session.benchmark_probes, values, strict=True)
        self.record_column(self.needs[0], column, [value if probe.kind == kind else None for probe, value in pairs])
