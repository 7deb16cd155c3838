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
from typing import Any, Literal, get_args

from scipy.stats import binomtest

from atwu.data.records import file_records
from atwu.judge.verdicts import Claim

Split = Literal["dev", "test"]


@dataclass(frozen=True, slots=True)
class LabelledCase:
    claim: Claim
    label: bool
    kind: str
    """Type of case: `paraphrase`, `near_miss`, `hedging_list` and so on."""
    split: Split


def load_cases(split: str | None = None, *, path: Path | None = None) -> tuple[LabelledCase, ...]:
    """Read labelled cases.

    Args:
        path: JSONL with question, reference, answer and label (true or false), and optionally facts (list of texts),
            kind and split; None: the shipped cases.
    """
    cases = [_case(record, where) for where, record in file_records(path or Path(__file__).with_name("cases.jsonl"))]
    if not cases:
        raise ValueError(f"{path} has no cases; give rows with question, reference, answer and label.")
    return tuple(case for case in cases if split in (None, case.split))


def _case(row: Mapping[str, Any], where: str) -> LabelledCase:
    names = ("question", "reference", "answer")
    wrong = [name for name in names if not isinstance(row.get(name), str)]
    if wrong:
        raise ValueError(f"{where}: expected text in {', '.join(wrong)}; the columns are {', '.join(row)}.")
    if not isinstance(row.get("label"), bool):
        raise ValueError(f"{where}, column 'label': expected true or false, got {row.get('label')!r}.")
    facts = row.get("facts") or []
    if not isinstance(facts, list) or not all(isinstance(fact, str) for fact in facts):
        raise ValueError(f"{where}, column 'facts': expected a list of texts, got {facts!r}.")
    split = row.get("split", "test")
    if split not in get_args(Split):
        raise ValueError(f"{where}, column 'split': expected dev or test, got {split!r:.60}.")
    claim = Claim(row["question"], row["reference"], row["answer"], tuple(facts))
    return LabelledCase(claim, row["label"], str(row.get("kind", "unnamed")), split)


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
