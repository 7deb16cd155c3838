"""Labelled cases for measuring a judge: invented questions, references and answers with a verdict given by hand.

Labels follow the correctness rubric, not any judge. A fact counts as stated when it is given away, in a denial too; when a
denial or correction puts another value in its place it is not. A person is stated by the surname alone, not by the
first name; a date only with all the parts that are asked for; of several things asked for, more than half are needed.

The cases come from two authors. The second had not seen the rules of the offline judge. `dev` is what the rules were tuned
on: all cases of the first author and half of the second's; the score on it is no forecast. `test` is the other half of the
second author's cases, which was never opened while the rules were written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from atwu.data.records import read_jsonl
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


def load_cases(split: Split | None = None, *, path: Path | None = None) -> tuple[LabelledCase, ...]:
    """Read labelled cases.

    Args:
        split: only this half; None: both.
        path: JSONL of the caller's own, with question, reference, answer and label (true or false), and if wanted facts (list
            of texts), kind and split; None: the shipped cases.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a malformed case, with file and line.
    """
    if path is None:
        path = Path(str(files("atwu.judge").joinpath("cases.jsonl")))
    cases = [_case(record, where) for where, record in read_jsonl(path)]
    return tuple(case for case in cases if split in (None, case.split))


def _case(row: Mapping[str, Any], where: str) -> LabelledCase:
    texts = {name: row.get(name) for name in ("question", "reference", "answer")}
    wrong = [name for name, value in texts.items() if not isinstance(value, str)]
    if wrong:
        raise ValueError(f"{where}: expected text in {', '.join(wrong)}; the columns are {', '.join(row)}.")
    if not isinstance(row.get("label"), bool):
        raise ValueError(f"{where}, column 'label': expected true or false, got {row.get('label')!r}.")
    facts = row.get("facts") or []
    if not isinstance(facts, list) or not all(isinstance(fact, str) for fact in facts):
        raise ValueError(f"{where}, column 'facts': expected a list of texts, got {facts!r}.")
    claim = Claim(**texts, facts=tuple(facts))  # type: ignore[arg-type]
    return LabelledCase(
        claim, row["label"], str(row.get("kind", "unnamed")), "dev" if row.get("split") == "dev" else "test"
    )
