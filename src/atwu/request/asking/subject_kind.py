"""Find what kind of subject a name is for a model: from what it says the name is, else from the names that it reads alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from atwu.data.languages import WORD
from atwu.request.asking.subject_asker import SubjectAsker, first_sentence
from atwu.request.asking.subject_templates import SubjectKind

_QUESTIONS = ("What is {name}?", "Who is {name}?", "In one sentence, what is {name}?")
_SAMPLED = 2
"""Further answers to each question, at temperature 1: of a name with two meanings, they name both."""
SECOND_MEANING = 0.3
"""Share of the answers from which a second kind is a second meaning."""
_ANSWER_TOKENS = 24


@dataclass(frozen=True, slots=True)
class FoundKind:
    kinds: tuple[SubjectKind, ...]
    """The kind, or the two kinds of a name with two meanings; none if the model does not say what the name is."""
    note: str
    """How it was found, in one line."""


def find_subject_kind(asker: SubjectAsker, name: str, kinds: Mapping[str, SubjectKind]) -> FoundKind:
    """Return the kind of a name; none if the model does not say what it is, and has no weights to compare names."""
    questions = [question.replace("{name}", name) for question in _QUESTIONS]
    askings = [asker.question(question, tokens=_ANSWER_TOKENS) for question in questions]
    askings += [
        asker.question(question, temperature=1.0, draw=draw, tokens=_ANSWER_TOKENS)
        for question in questions
        for draw in range(_SAMPLED)
    ]
    answers = asker.ask(askings, progress=f"what {name} is")
    votes = Counter(kind for answer in answers if (kind := _kind_in(answer, name, kinds)) is not None)
    ranked = votes.most_common(2)
    if ranked and ranked[0][1] > 1:
        return _voted(name, kinds, ranked, len(answers))
    for other in _closest_names(asker, name):
        listed = _listed_kind(other, kinds)
        if listed is not None:
            return FoundKind((listed,), f"{name}: asked about as a {listed.name}, like {other} (--kind changes it)")
    if ranked:
        return _voted(name, kinds, ranked[:1], len(answers))
    return FoundKind(
        (), f"the model does not say what kind of thing {name!r} is; give it with --kind, one of {', '.join(kinds)}."
    )


def kind_of_answer(asker: SubjectAsker, name: str, kinds: Mapping[str, SubjectKind]) -> SubjectKind | None:
    """Return the kind of an answer that becomes a subject; None for one that is no name of such a kind, such as "German"."""
    if asker.read is None:
        return next(iter(find_subject_kind(asker, name, kinds).kinds), None)
    return _listed_kind(_closest_names(asker, name)[0], kinds)


def _closest_names(asker: SubjectAsker, name: str) -> list[str]:
    """Return of each shipped kind the name that the model reads most like a given one, the closest kind first."""
    if asker.read is None:
        return []
    return [names[0] for names in asker.read.neighbours.nearest([name])[name]]


def _listed_kind(name: str, kinds: Mapping[str, SubjectKind]) -> SubjectKind | None:
    return next((kind for kind in kinds.values() if name in kind.other_names), None)


def _voted(name: str, kinds: Mapping[str, SubjectKind], ranked: list[tuple[str, int]], answers: int) -> FoundKind:
    first, votes = ranked[0]
    if len(ranked) > 1 and ranked[1][1] >= SECOND_MEANING * answers:
        second, fewer = ranked[1]
        note = (
            f"{name} has two meanings for this model: {first} ({votes} of {answers} answers) and {second} ({fewer}). "
            f"Both are asked about; --kind {first} keeps one."
        )
        return FoundKind((kinds[first], kinds[second]), note)
    return FoundKind((kinds[first],), f"{name}: asked about as a {first}, as {votes} of {answers} answers say")


def _kind_in(answer: str, name: str, kinds: Mapping[str, SubjectKind]) -> str | None:
    """Return the kind of the first word in an answer that names one, behind the subject itself."""
    sentence = first_sentence(answer).lower()
    behind = sentence.partition(name.lower())[2] or sentence
    for word in WORD.findall(behind):
        for kind in kinds.values():
            if word in kind.words:
                return kind.name
    return None
