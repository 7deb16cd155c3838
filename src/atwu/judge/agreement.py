"""Agreement of a judge with human labels or with another judge, and the labelled cases that ship with the package.

Labels follow the correctness rubric. A fact counts as stated when the answer reveals it, even in a denial, but not when
a denial or correction replaces it by another value. A person is stated by surname alone, not by first name; a date only
with all parts asked for; of several things asked for, more than half are needed.

The shipped cases have two authors. The second had not seen the rules of the offline judge. The rules were tuned on
`dev`: all cases of the first author and half of the second's, so its score is optimistic. `test` is the other half of
the second author's cases, which was not used while the rules were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import with_config
from scipy.stats import binomtest

from atwu._file_reading import type_adapter, validated
from atwu.data.records import file_records
from atwu.judge.verdicts import Claim


@with_config(strict=True, extra="ignore")
@dataclass(frozen=True, slots=True)
class LabelledCase:
    """A row of a file of cases."""

    question: str
    reference: str
    answer: str
    label: bool
    facts: tuple[str, ...] | None = None
    kind: str = "unnamed"
    """Type of case: `paraphrase`, `near_miss`, `hedging_list` and so on."""
    split: Literal["dev", "test"] = "test"

    @property
    def claim(self) -> Claim:
        return Claim(self.question, self.reference, self.answer, self.facts or ())


def load_cases(split: str | None = None, *, path: Path | None = None) -> tuple[LabelledCase, ...]:
    """Read labelled cases.

    Args:
        path: JSONL with question, reference, answer and label (true or false), and optionally facts (list of texts),
            kind and split; None: the shipped cases.
    """
    records = file_records(path or Path(__file__).with_name("cases.jsonl"))
    cases: list[LabelledCase] = [validated(row, type_adapter(LabelledCase), what=where) for where, row in records]
    if not cases:
        raise ValueError(f"{path} has no cases; give rows with question, reference, answer and label.")
    return tuple(case for case in cases if split in (None, case.split))


@dataclass(frozen=True, slots=True)
class AgreementResult:
    """Agreement of verdicts with labels. Unscored verdicts are only counted in `unscored`."""

    n: int
    unscored: int
    accuracy: float | None
    """Share of scored verdicts that equal their label; None without any."""
    interval: tuple[float, float] | None
    """95 % Wilson interval of the accuracy, which treats cases as independent."""
    kappa: float | None
    """Cohen's kappa: 1 perfect, 0 chance; None if both sides always give the same label."""
    false_positives: int
    false_negatives: int
    kinds: Mapping[str, AgreementResult] = field(default_factory=dict)
    """The same for each kind of case, in alphabetical order; empty if no kinds are given."""


def agreement(
    labels: Sequence[bool | None], verdicts: Sequence[bool | None], *, kinds: Sequence[str] | None = None
) -> AgreementResult:
    """Compare verdicts with human labels (True where the answer states the fact) or with the verdicts of another judge.

    A case is unscored if either side is None. With `kinds`, also compare each kind of case.
    """
    # An unscored verdict is no disagreement.
    pairs = [(a, b) for a, b in zip(labels, verdicts, strict=True) if a is not None and b is not None]
    n = len(pairs)
    agreed = sum(a == b for a, b in pairs)
    accuracy, interval = None, None
    if n:
        wilson = binomtest(agreed, n).proportion_ci(method="wilson")
        accuracy, interval = agreed / n, (wilson.low, wilson.high)
    parts: dict[str, AgreementResult] = {}
    for kind in sorted(set(kinds or ())):
        chosen = [place for place, other in enumerate(kinds or ()) if other == kind]
        parts[kind] = agreement([labels[place] for place in chosen], [verdicts[place] for place in chosen])
    return AgreementResult(
        n=n,
        unscored=len(labels) - n,
        accuracy=accuracy,
        interval=interval,
        kappa=_kappa(pairs),
        false_positives=sum(b and not a for a, b in pairs),
        false_negatives=sum(a and not b for a, b in pairs),
        kinds=parts,
    )


def _kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """`(observed - expected) / (1 - expected)`, expected from the two shares of True."""
    if not pairs:
        return None
    n = len(pairs)
    first, second = (sum(pair[side] for pair in pairs) for side in (0, 1))
    expected = (first * second + (n - first) * (n - second)) / (n * n)
    observed = sum(a == b for a, b in pairs) / n
    # Both sides always say the same, so chance alone agrees always.
    if expected == 1:
        return None
    return (observed - expected) / (1 - expected)
