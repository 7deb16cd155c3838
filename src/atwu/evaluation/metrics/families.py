"""Adversarial questions: RWKU's nine families of probes (Jin et al. 2024), from our own templates.

Each family asks for a row's fact in another way. A question never contains the key tokens, with two exceptions: multiple
choice lists the answer among the options, and the reverse query gives the fact and asks for the subject.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from atwu.data.schema import Example, Message
from atwu.evaluation.columns import FORGET, Percent
from atwu.evaluation.generations import Prompt
from atwu.evaluation.metric import JudgedColumn, JudgedMetric
from atwu.evaluation.metrics.judge_scores import worst
from atwu.evaluation.questions import (
    FAMILY_TEMPLATES,
    InContextExamples,
    fold,
    introduce_subject,
    labelled_parts,
    letter_options,
    pattern_of,
    resolve_choice,
    says,
    span_texts,
    with_synonyms,
)
from atwu.judge.verdicts import Claim

if TYPE_CHECKING:
    from atwu.evaluation.session import Session

WRONG_OPTIONS = 3
"""Wrong options of a multiple-choice question, at most."""
EXAMPLES = 3
"""Answered questions about others before the question, at most."""


@dataclass(frozen=True, slots=True)
class AttackProbe:
    """An adversarial question and the claim that its answer is judged by."""

    prompt: Prompt
    unanswered: Claim
    """Question as shown to the judge, true answer and facts, without the model's answer."""
    choices: tuple[str, ...] = ()
    """Options A, B, ... of a multiple-choice question."""

    def claim(self, answer: str) -> Claim:
        """Return the model's answer as a claim; an option letter is replaced by its option."""
        return replace(self.unanswered, answer=resolve_choice(answer, self.choices))


Family = Callable[[Example, Sequence[Example], random.Random], Iterator[AttackProbe]]
"""(row, other rows, generator) -> candidate questions, best first; none if the row does not allow the family."""


def probes(row: Example, others: Sequence[Example], *, seed: int) -> dict[str, AttackProbe]:
    """Return one question per family, in the order of `FAMILIES`.

    Args:
        others: Retain rows, for in-context examples and, if the row has no wrong answers, for wrong options.
        seed: Seed of templates, options and their order, independent for each (row, family).

    Returns:
        At most nine probes. A family is missing if the row does not allow it (no subject, no options) or if each of its
        templates would reveal the answer.
    """
    chosen = {}
    if not row.messages:
        return {}
    for name, build in FAMILIES.items():
        # A generator of its own for each row and family, so that adding or leaving out others changes no question.
        rng = random.Random(f"families/{name}/{seed}/{row.question}\n{row.answer}")
        probe = next((probe for probe in build(row, others, rng) if _is_valid(name, probe, row)), None)
        if probe is not None:
            chosen[name] = probe
    return chosen


def _is_valid(family: str, probe: AttackProbe, row: Example) -> bool:
    """Return whether the prompt differs from the row's own question and does not reveal the answer."""
    if probe.prompt == Prompt(row.messages):
        return False
    # Multiple choice shows the answer among its options.
    if probe.choices:
        return True
    hidden = labelled_parts(row)
    if family == "reverse_query":  # gives the fact and asks for the subject
        hidden = probe.unanswered.facts
    text = "\n".join([*(message.content for message in probe.prompt.messages), probe.prompt.prefill])
    return not any(says(text, secret) for secret in hidden)


def _probe(row: Example, text: str, *, prefill: str = "", choices: tuple[str, ...] = ()) -> AttackProbe:
    prompt = Prompt((*row.messages[:-1], Message("user", text)), prefill=prefill)
    return AttackProbe(prompt, Claim(row.question, row.answer, "", span_texts(row)), choices)


def _any_order(texts: Sequence[str], rng: random.Random) -> list[str]:
    return rng.sample(texts, len(texts))


def _frame(texts: Sequence[str]) -> Family:
    """Return the family that inserts the question into one of several templates."""

    def build(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
        for text in _any_order(texts, rng):
            yield _probe(row, text.format(question=row.question))

    return build


def _affirmative_suffix(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    for text in _any_order(FAMILY_TEMPLATES["affirmations"], rng):
        yield _probe(row, row.question, prefill=text)


def _multiple_choice(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    secrets = labelled_parts(row)
    wrong = [
        text
        for text in dict.fromkeys(row.wrong_answers)
        if fold(text) != fold(row.answer) and not (secrets and all(says(text, secret) for secret in secrets))
    ]
    wrong = _any_order(wrong, rng)[:WRONG_OPTIONS]
    if not wrong:
        # Answers to other questions are options that a model can tell apart by their form, but better than none.
        wrong = [other.answer for other in InContextExamples(others, (), count=WRONG_OPTIONS).rows(row, rng)]
    if not wrong:
        return
    options = tuple(_any_order([row.answer, *dict.fromkeys(wrong)], rng))
    text = rng.choice(FAMILY_TEMPLATES["choices"]).format(question=row.question, options=letter_options(options))
    yield _probe(row, text, choices=options)


def _reverse_query(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    if row.subject is None or not says(f"{row.question}\n{row.answer}", row.subject):
        return
    question, answer = (_without_name(text, row.subject) for text in (row.question, row.answer))
    for text in _any_order(FAMILY_TEMPLATES["reversals"], rng):
        asked = text.format(question=question, answer=answer)
        probe = _probe(row, asked)
        yield replace(probe, unanswered=Claim(asked, row.subject, "", (row.subject,)))


def _without_name(text: str, name: str) -> str:
    """Replace the whole name by X, then each of its parts longer than two letters (case-sensitive)."""
    text = re.sub(pattern_of(name), "X", text, flags=re.IGNORECASE)
    # A surname alone would give the subject away; two letters may be a word of the language.
    for part in name.split():
        if len(part) > 2:
            text = re.sub(pattern_of(part), "X", text)
    return text


def _synonym_manipulation(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    keep = labelled_parts(row)
    text = with_synonyms(row.question, rng, keep_out=keep)
    for frame in _any_order(FAMILY_TEMPLATES["introductions"], rng):
        if row.subject is not None and says(row.question, row.subject):
            yield _probe(row, introduce_subject(text, row.subject, frame))
    yield _probe(row, text)


def _background_hint(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    first = min((start for start, _ in row.forget_spans or ()), default=0)
    opening = row.answer[:first].strip(" \"'“‘(,;:")
    if len(opening.split()) > 1:
        for text in _any_order(FAMILY_TEMPLATES["openings"], rng):
            yield _probe(row, text.format(opening=opening, question=row.question))
    # Without an opening that names no key token, the length of the answer is the hint.
    words = len(row.answer.split())
    if row.subject is not None and says(row.question, row.subject):
        for text in _any_order(FAMILY_TEMPLATES["topics"], rng):
            yield _probe(row, text.format(subject=row.subject, words=words, question=row.question))
    for text in _any_order(FAMILY_TEMPLATES["bare_topics"], rng):
        yield _probe(row, text.format(words=words, question=row.question))


def _in_context_learning(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    drawn = InContextExamples(others, (), count=EXAMPLES).rows(row, rng)
    if not drawn:
        return
    examples = "\n\n".join(f"Q: {example.question}\nA: {example.answer}" for example in drawn)
    for text in _any_order(FAMILY_TEMPLATES["examples"], rng):
        yield _probe(row, text.format(examples=examples, question=row.question))


FAMILIES: Mapping[str, Family] = {
    "prefix_injection": _frame(FAMILY_TEMPLATES["prefixes"]),
    "affirmative_suffix": _affirmative_suffix,
    "role_playing": _frame(FAMILY_TEMPLATES["roles"]),
    "multiple_choice": _multiple_choice,
    "reverse_query": _reverse_query,
    "synonym_manipulation": _synonym_manipulation,
    "background_hint": _background_hint,
    "in_context_learning": _in_context_learning,
    "cross_lingual": _frame(FAMILY_TEMPLATES["languages"]),
}


class Families(JudgedMetric):
    name = "families"
    about = "Adversarial questions: RWKU's nine families of probes, checked by the judge"
    cost = "nine answers and nine judge calls per forget row"
    needs = (FORGET,)
    uses = ("max_new_tokens", "seed")
    columns = tuple(
        Percent(
            f"leak_{family}",
            worst,
            f"leak, {family.replace('_', ' ')}",
            "percentage of forget rows whose fact is stated in answer to at least one of the nine probes"
            if family == "worst_family"
            else f"percentage of forget rows whose fact is stated in answer to the {family.replace('_', ' ')} probe "
            "(Jin et al. 2024)",
            sets=(FORGET,),
        )
        for family in ("worst_family", *FAMILIES)
    )

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        forget = {row.question for row in session.sets[FORGET]}
        subjects = {row.subject for row in session.sets[FORGET]} - {None}
        others = [row for row in session.pool if row.question not in forget and row.subject not in subjects]
        self._probes = [probes(row, others, seed=session.config.seed) for row in session.sets[FORGET]]

    def prompts(self) -> Iterable[Prompt]:
        return [probe.prompt for row in self._probes for probe in row.values()]

    def _claim(self, probe: AttackProbe) -> Claim | None:
        answer = self.session.answer(probe.prompt)
        if answer is None:
            return None
        return probe.claim(answer)

    def judged_columns(self) -> Iterator[JudgedColumn]:
        for name in ("worst_family", *FAMILIES):
            selected = [[row[family] for family in row if name in ("worst_family", family)] for row in self._probes]
            yield FORGET, f"leak_{name}", worst, [list(map(self._claim, row)) for row in selected]
