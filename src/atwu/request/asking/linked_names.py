"""Answers that lead back: what a model brings up about a subject, and of which it says that it belongs to this subject.

To an open question ("What are three projects of NASA?") a small model says something else each time, so that no answer is
repeated in most askings. But asked what the Space Shuttle is, it names NASA: it knows that the two belong together. A name that
it makes up does not lead back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from atwu.data.fact import is_name_or_value
from atwu.data.fact_blanks import find_mentions
from atwu.data.languages import WORD
from atwu.data.matching import states
from atwu.data.schema import merged_spans
from atwu.request.asking.asked_facts import AskedFact
from atwu.request.asking.known_facts import Answers, Said
from atwu.request.asking.subject_asker import SubjectAsker
from atwu.request.asking.subject_templates import SubjectKind, SubjectQuestion

QUESTIONS_BACK = (
    "What is {answer}?",
    "What is {answer} known for?",
    "Tell me about {answer}.",
    "Which {kind} is {answer} linked to?",
)
FEWEST_SAYINGS = 2
"""Askings in which a name must be brought up: most of what a model makes up is said once."""
MOST_NAMES = 40
"""Names that are asked about, at most, those said most often."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a model brings an answer up."""

    question: SubjectQuestion
    said: Said
    """The first answer to the question that says it."""
    agree: int
    askings: int


def find_linked(
    asker: SubjectAsker, subject: str, kind: SubjectKind, answers: Sequence[Answers], facts: Sequence[AskedFact]
) -> list[AskedFact]:
    """Return facts about a subject whose answers lead back to it, beside those that are known already.

    Args:
        kind: of the subject.
        answers: what the model said about it.
        facts: what was found in these answers.
    """
    known = [fact for fact in facts if fact.known]
    chosen = _choose_names(subject, kind, answers, known)
    short = _short_name(subject, kind)
    others = [name for name in kind.other_names if not any(states(fact.key_text, name) for fact in known)]
    questions = [question.format(answer=text, kind=kind.name) for text in chosen for question in QUESTIONS_BACK]
    said = iter(asker.ask([asker.question(question) for question in questions], progress="questions about its answers"))
    linked: list[AskedFact] = []
    taken = {fact.row.question for fact in known}
    for text in chosen:
        back = sum(_names_first(next(said), short, others) for _ in QUESTIONS_BACK)
        places = [place for place in _places(text, answers) if place.question.question not in taken]
        if not places or not back:
            continue
        place = max(places, key=lambda place: place.agree)
        fact = _linked_fact(text, subject, place, back)
        if fact.known:
            taken.add(place.question.question)
            linked.append(fact)
    return linked


def _short_name(subject: str, kind: SubjectKind) -> str:
    """Return how a text names a subject that it is not about: a person by the last name."""
    if kind.name == "person":
        return subject.split()[-1]
    return subject


def _names_first(answer: str, subject: str, others: Sequence[str]) -> bool:
    """Return whether an answer names the subject, and no other one of the same kind before.

    Of the Louvre, which a small model gives to Egypt, it says: "a museum in Paris, France, with art of ancient Egypt".
    """
    mentions = find_mentions(answer, subject)
    if not mentions:
        return False
    before = answer[: mentions[0][0]]
    return not any(find_mentions(before, other) for other in others)


def _choose_names(subject: str, kind: SubjectKind, answers: Sequence[Answers], known: Sequence[AskedFact]) -> list[str]:
    """Return the names that are said most often; none that says what is known, or another one.

    Nor another subject of the same kind: Canada leads back to the United States, but is not to be forgotten with them.
    """
    often: Counter[str] = Counter()
    for several in answers:
        for said in (said for sayings in several.said for said in sayings):
            often.update({text for text in said.texts if is_name_or_value(text) and text[0].isalpha()})
    own = {word.casefold() for word in WORD.findall(subject)}
    texts = [
        text
        for text, count in often.most_common()
        if count >= FEWEST_SAYINGS
        and text not in kind.other_names
        and own.isdisjoint(word.casefold() for word in WORD.findall(text))
    ]
    chosen: list[str] = []
    before = [fact.key_text for fact in known]
    for text in texts:
        if not any(states(text, other) or states(other, text) for other in (*before, *chosen)):
            chosen.append(text)
    return chosen[:MOST_NAMES]


def _places(text: str, answers: Sequence[Answers]) -> Iterator[_Place]:
    for several in answers:
        for question, sayings in zip(several.questions, several.said, strict=True):
            agreeing = [said for said in sayings if text in said.texts]
            if agreeing:
                yield _Place(question, agreeing[0], len(agreeing), len(sayings))


def _linked_fact(text: str, subject: str, place: _Place, back: int) -> AskedFact:
    part = place.said.parts[place.said.texts.index(text)]
    # What a mention leaves out would be held in place.
    spans = merged_spans([part, *find_mentions(place.said.row.answer, text)])
    row = replace(place.said.row, forget_spans=spans, paraphrases=place.question.paraphrases)
    return AskedFact(row, text, place.agree, place.askings, place.question.source, subject=subject, leads_back=back)
