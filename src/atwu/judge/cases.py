"""Labelled cases for measuring a judge: invented questions, references and answers with a verdict given by hand.

Labels follow the correctness rubric, not any judge. A fact counts as stated when it is given away, in a denial too; when a
denial or correction puts another value in its place it is not. A person is stated by the surname alone, not by the
first name; a date only with all the parts that are asked for; of several things asked for, more than half are needed. All
cases of one question are in the same half: `dev` to tune rules on, `test` for the figure to report.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from atwu.judge.verdicts import Claim

Split = Literal["dev", "test"]


@dataclass(frozen=True, slots=True)
class LabelledCase:
    """A claim and the verdict a person gives it."""

    claim: Claim
    label: bool
    """Whether the answer states the fact."""
    kind: str
    """What makes the case interesting: `paraphrase`, `near_miss`, `hedging_list` and so on."""
    split: Split


def load_cases(split: Split | None = None) -> tuple[LabelledCase, ...]:
    """Read the shipped cases.

    Args:
        split: only this half; None: both.
    """
    lines = files("atwu.judge").joinpath("cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = (_case(json.loads(line)) for line in lines)
    return tuple(case for case in cases if split in (None, case.split))


def _case(row: dict[str, object]) -> LabelledCase:
    facts = row["facts"]
    if not isinstance(facts, list):
        raise ValueError(f"facts of a case must be a list, got {facts!r}.")
    claim = Claim(str(row["question"]), str(row["reference"]), str(row["answer"]), tuple(map(str, facts)))
    return LabelledCase(claim, row["label"] is True, str(row["kind"]), "dev" if row["split"] == "dev" else "test")
