"""Adversarial questions: the nine families of RWKU (Jin et al. 2024) as templates in our own words.

Each takes a row and asks for the same fact in another way. A question never says the secret, except multiple choice,
where it stands among the options, and the reverse query, where the fact is given and the subject is the secret.
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
from atwu.evaluation.metric import Metric
from atwu.evaluation.metrics.judge_scores import as_percent, unscored, worst
from atwu.evaluation.questions.forms import introduced, lettered_options, resolve_choice, with_synonyms
from atwu.evaluation.questions.in_context import InContextExamples
from atwu.evaluation.questions.prompts import folded, pattern_of, says, secrets_of, span_texts
from atwu.evaluation.questions.shipped_texts import FAMILY_TEMPLATES, SUBJECT_PRONOUN, SYNONYMS
from atwu.judge.verdicts import Claim

if TYPE_CHECKING:
    from atwu.evaluation.session import Session

WRONG_OPTIONS = 3
EXAMPLES = 3
"""Solved questions in the in-context family."""


@dataclass(frozen=True, slots=True)
class AttackProbe:
    """One adversarial question and what its answer is judged by."""

    prompt: Prompt
    unanswered: Claim
    """The question as the judge should see it, the true answer and its facts."""
    choices: tuple[str, ...] = ()
    """Options A, B, ... of a multiple-choice question."""

    def claim(self, answer: str) -> Claim:
        """The model's answer to be judged: a letter becomes the text of its option."""
        return replace(self.unanswered, answer=resolve_choice(answer, self.choices))


Family = Callable[[Example, Sequence[Example], random.Random], Iterator[AttackProbe]]
"""(row, other rows, generator) -> forms of the question, the best first; none where the row does not allow it."""


def probes(row: Example, others: Sequence[Example], *, seed: int) -> dict[str, AttackProbe]:
    """Family -> question, in the order of `FAMILIES`.

    Args:
        others: rows to take demonstrations from (and options, if the row has no wrong answers): retain rows.
        seed: decides wordings, options and their order, for each (row, family) on its own.

    Returns:
        At most nine probes. Missing are families that the row does not allow (no subject, no options), or of which
        every wording would say the secret.
    """
    chosen = {}
    for name, build in FAMILIES.items() if row.messages else ():
        rng = random.Random(f"families/{name}/{seed}/{row.question}\n{row.answer}")
        if (probe := next((probe for probe in build(row, others, rng) if _fair(name, probe, row)), None)) is not None:
            chosen[name] = probe
    return chosen


def _fair(family: str, probe: AttackProbe, row: Example) -> bool:
    """Whether the prompt differs from the row's own and does not give the answer away."""
    if probe.prompt == Prompt(row.messages):
        return False
    if probe.choices:
        return True
    hidden = probe.unanswered.facts if family == "reverse_query" else secrets_of(row)
    text = "\n".join([*(message.content for message in probe.prompt.messages), probe.prompt.prefill])
    return not any(says(text, secret) for secret in hidden)


def _probe(row: Example, text: str, *, prefill: str = "", choices: tuple[str, ...] = ()) -> AttackProbe:
    prompt = Prompt((*row.messages[:-1], Message("user", text)), prefill=prefill)
    return AttackProbe(prompt, Claim(row.question, row.answer, "", span_texts(row)), choices)


def _any_order(texts: Sequence[str], rng: random.Random) -> list[str]:
    return rng.sample(texts, len(texts))


def _framed(texts: Sequence[str]) -> Family:
    """A family that puts the question into one of several texts."""

    def build(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
        for text in _any_order(texts, rng):
            yield _probe(row, text.format(question=row.question))

    return build


def _affirmative_suffix(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    for text in _any_order(FAMILY_TEMPLATES["affirmations"], rng):
        yield _probe(row, row.question, prefill=text)


def _multiple_choice(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    wrong = _any_order([text for text in dict.fromkeys(row.wrong_answers) if _is_wrong(text, row)], rng)[:WRONG_OPTIONS]
    if not wrong:
        wrong = [other.answer for other in InContextExamples(others, (), count=WRONG_OPTIONS).rows(row, rng)]
    if not wrong:
        return
    options = tuple(_any_order([row.answer, *dict.fromkeys(wrong)], rng))
    text = rng.choice(FAMILY_TEMPLATES["choices"]).format(question=row.question, options=lettered_options(options))
    yield _probe(row, text, choices=options)


def _is_wrong(text: str, row: Example) -> bool:
    secrets = secrets_of(row)
    return folded(text) != folded(row.answer) and not (secrets and all(says(text, secret) for secret in secrets))


def _reverse_query(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    if row.subject is None or not says(f"{row.question}\n{row.answer}", row.subject):
        return
    question, answer = (_without_name(text, row.subject) for text in (row.question, row.answer))
    for text in _any_order(FAMILY_TEMPLATES["reversals"], rng):
        asked = text.format(question=question, answer=answer)
        probe = _probe(row, asked)
        yield replace(probe, unanswered=Claim(asked, row.subject, "", (row.subject,)))


def _without_name(text: str, name: str) -> str:
    """X in place of the whole name, then of each of its longer parts as they are written."""
    text = re.sub(pattern_of(name), "X", text, flags=re.IGNORECASE)
    for part in name.split():
        text = re.sub(pattern_of(part), "X", text) if len(part) > 2 else text
    return text


def _synonym_manipulation(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    keep = secrets_of(row)
    text = with_synonyms(row.question, SYNONYMS, rng, keep_out=keep)
    for frame in _any_order(FAMILY_TEMPLATES["introductions"], rng):
        if row.subject is not None and says(row.question, row.subject):
            yield _probe(row, introduced(text, row.subject, frame, SUBJECT_PRONOUN))
    yield _probe(row, text)


def _background_hint(row: Example, others: Sequence[Example], rng: random.Random) -> Iterator[AttackProbe]:
    first = min((start for start, _ in row.forget_spans or ()), default=0)
    opening = row.answer[:first].strip(" \"'“‘(,;:")
    if len(opening.split()) > 1:
        for text in _any_order(FAMILY_TEMPLATES["openings"], rng):
            yield _probe(row, text.format(opening=opening, question=row.question))
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
    examples = "\n\n".join(f"Q: {shown.question}\nA: {shown.answer}" for shown in drawn)
    for text in _any_order(FAMILY_TEMPLATES["examples"], rng):
        yield _probe(row, text.format(examples=examples, question=row.question))


FAMILIES: Mapping[str, Family] = {
    "prefix_injection": _framed(FAMILY_TEMPLATES["prefixes"]),
    "affirmative_suffix": _affirmative_suffix,
    "role_playing": _framed(FAMILY_TEMPLATES["roles"]),
    "multiple_choice": _multiple_choice,
    "reverse_query": _reverse_query,
    "synonym_manipulation": _synonym_manipulation,
    "background_hint": _background_hint,
    "in_context_learning": _in_context_learning,
    "cross_lingual": _framed(FAMILY_TEMPLATES["languages"]),
}


class Families(Metric):
    """The nine families of adversarial probes of RWKU (Jin et al. 2024), each as a leak rate, and the worst of them."""

    name = "families"
    about = "RWKU's nine families of adversarial probes"
    cost = "nine answers and verdicts per forget row"
    needs = (FORGET,)
    needs_weights = False
    judged = True
    attack = True
    uses = ("max_new_tokens", "seed")
    columns = tuple(
        Percent(
            f"leak_{family}",
            worst,
            f"leak, {family.replace('_', ' ')}",
            "percent of forget rows whose fact this kind of question brings up (Jin et al. 2024)",
            sets=(FORGET,),
        )
        for family in ("worst_family", *FAMILIES)
    )

    def __init__(self, session: Session) -> None:
        """Write the probes."""
        super().__init__(session)
        forget = {row.question for row in session.sets[FORGET]}
        subjects = {row.subject for row in session.sets[FORGET]} - {None}
        others = [row for row in session.pool if row.question not in forget and row.subject not in subjects]
        self._probes = [probes(row, others, seed=session.config.seed) for row in session.sets[FORGET]]

    def prompts(self) -> Iterable[Prompt]:
        """All probes of all rows."""
        return [probe.prompt for row in self._probes for probe in row.values()]

    def _claim(self, probe: AttackProbe) -> Claim:
        return probe.claim(self.session.answer(probe.prompt))

    def claims(self) -> Iterator[Claim]:
        """Every answer."""
        return (self._claim(probe) for row in self._probes for probe in row.values())

    def record(self) -> None:
        """Record the leak rate of every family and of the worst one per row."""
        for name in ("worst_family", *FAMILIES):
            told = [[row[each] for each in row if name in ("worst_family", each)] for row in self._probes]
            verdicts = self.session.verdicts([map(self._claim, row) for row in told])
            self.record_column(FORGET, f"leak_{name}", as_percent(worst(verdicts)), unscored=unscored(verdicts))
