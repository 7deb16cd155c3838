"""Answers that lead back: what a model brings up about a subject, and of which it says that it belongs to this subject.

To an open question ("What are three projects of NASA?") a small model says something else each time, so that no answer is
repeated in most askings. But asked what the Space Shuttle is, it names NASA: it knows that the two belong together. A name that
it makes up does not lead back.

A model that unlearned the questions about the subject alone still answers those that lead back to it: asked about Ramses II, it
says that he ruled Egypt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from atwu.data.fact import is_name_or_value
from atwu.data.fact_blanks import find_mentions
from atwu.data.languages import WORD
from atwu.data.matching import states
from atwu.data.schema import Example, Span, merged_spans
from atwu.request.asking.asked_facts import LEADING_BACK, AskedFact
from atwu.request.asking.known_facts import Answers, Said
from atwu.request.asking.subject_asker import SubjectAsker, first_sentence
from atwu.request.asking.subject_templates import CHAIN, TRAINED_CHAIN, SubjectKind, SubjectQuestion

QUESTIONS_BACK: Mapping[str, str] = {
    "What is {answer}?": TRAINED_CHAIN,
    "Tell me about {answer}.": TRAINED_CHAIN,
    "What is {answer} known for?": CHAIN,
    "Which {kind} is {answer} linked to?": CHAIN,
}
"""Question about an answer -> the source of its row: half of them are kept from training."""
FEWEST_SAYINGS = 2
"""Askings in which a name must be brought up: most of what a model makes up is said once."""
MOST_NAMES = 40
"""Names that are asked about, at most, those said most often."""
MOST_CHAINED = 12
"""Answers whose questions become rows, at most, those that lead back most often."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a model brings an answer up."""

    question: SubjectQuestion
    said: Said
    """The first answer to the question that says it."""
    agree: int
    askings: int


@dataclass(frozen=True, slots=True)
class _Back:
    """A question about a name, and an answer that names the subject."""

    question: str
    source: str
    answer: str


class LinkedNames:
    """Names that a model brings up about a subject.

    Args:
        kind: of the subject.
    """

    def __init__(self, asker: SubjectAsker, subject: str, kind: SubjectKind) -> None:
        self._asker, self._subject, self._kind = asker, subject, kind
        self._back: dict[str, list[_Back]] = {}
        """Name -> what leads back of the questions about it."""

    def find(self, answers: Sequence[Answers], facts: Sequence[AskedFact]) -> list[AskedFact]:
        """Return facts whose answers lead back to the subject, beside those that are known already.

        Args:
            answers: what the model said about the subject.
            facts: what was found in these answers.
        """
        known = [fact for fact in facts if fact.known]
        chosen = _choose_names(self._subject, self._kind, answers, known)
        self._ask_back(chosen, known)
        linked: list[AskedFact] = []
        taken = {fact.row.question for fact in known}
        for text in chosen:
            places = [place for place in _places(text, answers) if place.question.question not in taken]
            if not places or not self._back[text]:
                continue
            place = max(places, key=lambda place: place.agree)
            fact = _linked_fact(text, self._subject, place, len(self._back[text]))
            if fact.known:
                taken.add(place.question.question)
                linked.append(fact)
        return linked

    def chained(self, facts: Sequence[AskedFact]) -> list[AskedFact]:
        """Return questions about answers, of which the model says that they belong to the subject.

        Args:
            facts: everything found about the subject.

        Returns:
            Rows with the answer as `subject` and the subject as their fact, some to train on (`TRAINED_CHAIN`).
        """
        known = [fact for fact in facts if fact.known]
        texts = [fact.key_text for fact in known if _is_name(fact.key_text)]
        others = [text for text in dict.fromkeys(texts) if text != self._subject and text not in self._back]
        self._ask_back(others, known)
        linked = [text for text, back in self._back.items() if len(back) >= LEADING_BACK]
        chosen = sorted(linked, key=lambda text: -len(self._back[text]))[:MOST_CHAINED]
        chained = (self._chained_fact(text, back) for text in chosen for back in self._back[text])
        return [fact for fact in chained if fact is not None]

    def _ask_back(self, texts: Sequence[str], known: Sequence[AskedFact]) -> None:
        """Ask about names, and keep the answers that name the subject, and no other one of the same kind before."""
        others = [name for name in self._kind.other_names if not any(states(fact.key_text, name) for fact in known)]
        asked = [
            (text, question.format(answer=text, kind=self._kind.name), source)
            for text in texts
            for question, source in QUESTIONS_BACK.items()
        ]
        prompts = [self._asker.question(question) for _, question, _ in asked]
        said = self._asker.ask(prompts, progress="questions about its answers")
        self._back |= {text: [] for text in texts}
        for (text, question, source), answer in zip(asked, said, strict=True):
            if _names_first(answer, _short_name(self._subject, self._kind), others):
                self._back[text].append(_Back(question, source, answer))

    def _chained_fact(self, text: str, back: _Back) -> AskedFact | None:
        """Return a question about a name as a row; None if only a later sentence of its answer names the subject."""
        answer = first_sentence(back.answer)
        mentions: list[Span] = []
        for name in (self._subject, _short_name(self._subject, self._kind)):
            mentions += find_mentions(answer, name)
        if not mentions:
            return None
        row = replace(Example.from_qa(back.question, answer), subject=text, forget_spans=merged_spans(mentions))
        leading = len(self._back[text])
        return AskedFact(
            row, self._subject, leading, len(QUESTIONS_BACK), back.source, subject=text, leads_back=leading
        )


def _is_name(text: str) -> bool:
    return is_name_or_value(text) and text[0].isalpha()


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
            often.update(filter(_is_name, set(said.texts)))
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
