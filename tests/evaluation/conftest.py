"""Scripted models and judges, and results made of chosen row values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from atwu._cache import short_hash
from atwu.data.schema import Example
from atwu.evaluation.aggregate import compare_models, overall, values_by_set
from atwu.evaluation.generations import Decoding, Generation, Prompt
from atwu.evaluation.result import EvalResult, RowValues
from atwu.judge.verdicts import Claim, Pair, Preference, Verdict


def number_of(*parts: object) -> int:
    """A number that follows from any text."""
    return int(short_hash([repr(part) for part in parts])[:8], 16)


class Speaker:
    """A generator whose texts depend on prompt and decoding; it records its prompts."""

    def __init__(self, identity: str = "speaker", say: Callable[[Prompt], str] | None = None) -> None:
        self.identity = identity
        self._say = say or (lambda prompt: f"{identity} {number_of(prompt)}")
        self.asked: list[tuple[Prompt, Decoding]] = []

    def say(self, prompt: Prompt) -> str:
        return self._say(prompt)

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Any], None]) -> None:
        for index, prompt in enumerate(prompts):
            self.asked.append((prompt, decoding))
            on_done([(index, Generation(self.say(prompt), 1 + number_of(prompt) % 5))])


class Dice:
    """A judge whose verdicts depend on the claim and are drawn from `verdicts`."""

    def __init__(self, verdicts: Sequence[bool | None] = (True, False, False), name: str = "dice") -> None:
        self.verdicts = verdicts
        self.identity: Mapping[str, Any] = {"kind": name}
        self.claims: list[Claim] = []
        self.pairs: list[Pair] = []

    def verdict(self, claim: Claim) -> bool | None:
        return self.verdicts[number_of(claim.reference, claim.answer) % len(self.verdicts)]

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        self.claims += claims
        return [Verdict(self.verdict(claim)) for claim in claims]

    def prefer(self, pairs: Sequence[Pair]) -> list[Preference]:
        self.pairs += pairs
        ratings = (1.0, 5.0, 9.0, *((None,) if None in self.verdicts else ()))
        return [Preference(5.0, ratings[number_of(pair.second) % len(ratings)]) for pair in pairs]


def invented_people(count: int, prefix: str, *, per_subject: int = 1, paraphrases: int = 2) -> list[Example]:
    """Invented rows with exact secrets."""
    rows = []
    for index in range(count):
        name, town = f"{prefix} Venn{index // per_subject}", f"Kel{prefix}{index}bury"
        about = f"{name} (part {index})"
        answer = f"{name} lives in {town}."
        start = answer.index(town)
        rows.append(
            Example.from_qa(
                f"Where does {about} live?",
                answer,
                forget_spans=((start, start + len(town)),),
                paraphrases=tuple(f"Wording {number}: which town is home to {about}?" for number in range(paraphrases)),
                wrong_answers=(f"{name} lives in Brookham.", f"{name} lives in Tavimere."),
                subject=name,
            )
        )
    return rows


Columns = Mapping[str, Sequence[float | None] | np.ndarray]


def row_values(
    columns: Columns,
    subjects: Iterable[str] | None = None,
    *,
    ids: str = "row",
    unscored: Mapping[str, int] | None = None,
) -> RowValues:
    """Row values of one set; every row its own subject by default."""
    size = len(next(iter(columns.values())))
    names = tuple(f"{ids}{index}" for index in range(size))
    return RowValues(
        ids=names,
        subjects=tuple(subjects) if subjects is not None else names,
        metrics={
            name: tuple(None if value is None or np.isnan(value) else float(value) for value in column)
            for name, column in columns.items()
        },
        unscored=unscored or {},
    )


def result_of(
    rows: Mapping[str, RowValues],
    *,
    name: str = "model",
    original: EvalResult | None = None,
    retain_only: EvalResult | None = None,
    **fields: Any,
) -> EvalResult:
    """What `evaluate` would make of these row values, with some fields changed."""
    sides = compare_models(rows, original, retain_only)
    roles = {"original": original, "retain-only": retain_only}
    references = {role: other.fingerprint for role, other in roles.items() if other is not None}
    made = {"fingerprint": short_hash(name), "settings": {}, "versions": {}, "overall": overall(sides)} | fields
    return EvalResult(model=name, sets=values_by_set(sides.this), rows=rows, references=references, **made)
