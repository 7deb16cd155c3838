"""Ask questions in many ways and keep what a model says again: the test of whether it knows something.

The key text of an answer is the part that other askings repeat most often. What a model says for any name is no fact: with
weights, the evidence of `atwu.methods.weightings.contrast` tells; without, the same question about other names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from atwu.data.answer_units import answer_units, candidate_spans
from atwu.data.arrays import FloatArray
from atwu.data.fact import is_name_or_value
from atwu.data.fact_blanks import find_mentions, replace_words
from atwu.data.languages import WORD
from atwu.data.matching import states
from atwu.data.row_parsing import is_text
from atwu.data.schema import Example, Span, merged_spans, overlap
from atwu.evaluation.facts.readable import is_loop
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.teacher_forced import read_tokens
from atwu.judge.rules.refusals import is_refusal
from atwu.methods.weightings.contrast import evidence_of, is_told_apart
from atwu.methods.weightings.related_names import names_by_kind, replaceable_name
from atwu.request.asking.asked_facts import KNOWN_SHARE, AskedFact, Compared
from atwu.request.asking.subject_asker import SubjectAsker, SubjectPrompt, first_sentence
from atwu.request.asking.subject_templates import OWN_QUESTION, SubjectKind, SubjectQuestion

OTHER_SUBJECTS = 4
"""Names with which a question is asked for comparison, without weights."""
SHORTEST_STEM = 4
"""Letters that a word must share with a name to be a form of it; many unrelated words share three."""
FILLER_QUESTIONS = 2
"""Questions with a word without a capital in their answers, from which more make it one that the model likes to say, unless it
belongs to the subject."""
BELONGS_TO_SUBJECT = 2.0
"""Evidence in nats from which such a word belongs to the subject: "evolution" of a naturalist has 7, "groundbreaking" 1.3."""
GIVEN_TO_MOST = 0.5
"""Share of these names from which an answer that they get is knowledge about none of them."""
_ANY_NAMES = ("countries", "scientists", "companies", "people")
"""Kinds of names for a question whose subject's kind is not known: one name of each."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a model said to one asking: its first sentence, with the parts that may carry a fact."""

    row: Example
    parts: tuple[Span, ...]
    """Empty for a refusal, and for a text that goes round in a loop."""

    def text(self, part: Span) -> str:
        return self.row.answer[part[0] : part[1]]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self.text(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a model said to questions."""

    questions: tuple[SubjectQuestion, ...]
    said: tuple[tuple[Said, ...], ...]
    """Of each question what was said to its askings, without empty answers."""
    fillers: frozenset[str]
    """Words that the model likes to say, whatever it is asked."""


def ask_for_facts(
    asker: SubjectAsker, questions: Sequence[SubjectQuestion], *, kinds: Sequence[SubjectKind] = (), progress: str
) -> list[AskedFact]:
    """Return what a model says to questions, in order, without those that it does not answer at all.

    Args:
        kinds: kinds of subjects, whose names are asked about for comparison if the model is served.
        progress: name of the questions in the progress display.
    """
    return find_facts(asker, collect_answers(asker, questions, progress=progress), kinds=kinds, progress=progress)


def collect_answers(asker: SubjectAsker, questions: Sequence[SubjectQuestion], *, progress: str) -> Answers:
    """Ask questions in three ways, and those of which two answers have something in common in all ways."""
    said = _ask_ways(asker, [(question, _first_ways(asker, question)) for question in questions], progress)
    fillers = _fillers(asker, said)
    agreed = [_agreed_fact(question, sayings, fillers) for question, sayings in zip(questions, said, strict=True)]
    open_places = [place for place, fact in enumerate(agreed) if fact is not None and fact.agree > 1]
    further = [(questions[place], asker.further_ways(questions[place])) for place in open_places]
    for place, sayings in zip(open_places, _ask_ways(asker, further, f"{progress}, in other ways"), strict=True):
        said[place] += sayings
    return Answers(tuple(questions), tuple(tuple(sayings) for sayings in said), fillers)


def find_facts(
    asker: SubjectAsker, answers: Answers, *, kinds: Sequence[SubjectKind] = (), progress: str
) -> list[AskedFact]:
    """Return what most answers to each question say, and whether the model says it for its subject rather than for others.

    A question to which no answer says anything has no fact.
    """
    agreed = [
        _agreed_fact(question, sayings, answers.fillers)
        for question, sayings in zip(answers.questions, answers.said, strict=True)
    ]
    return _compared_with_other_names(asker, [fact for fact in agreed if fact is not None], kinds, progress)


def _ask_ways(
    asker: SubjectAsker, ways: Sequence[tuple[SubjectQuestion, Sequence[SubjectPrompt]]], progress: str
) -> list[list[Said]]:
    """Ask questions in some ways, and return of each what was said, without empty answers."""
    answers = iter(asker.ask([way for _, several in ways for way in several], progress=progress))
    said = []
    for question, several in ways:
        texts = [(way, next(answers)) for way in several]
        said.append([_said(question, way, text) for way, text in texts if text.strip()])
    return said


def mark_guesses(facts: Sequence[AskedFact]) -> list[AskedFact]:
    """Mark the facts about one subject whose answer says that of a question with more agreement."""
    marked = list(facts)
    surer: list[str] = []
    for place in sorted(range(len(facts)), key=lambda place: -facts[place].share):
        fact = facts[place]
        same = any(states(fact.key_text, key_text) or _same_description(fact.key_text, key_text) for key_text in surer)
        marked[place] = replace(fact, same_as_surer=same)
        if fact.known and not same:
            surer.append(fact.key_text)
    return marked


def _same_description(one: str, other: str) -> bool:
    """Return whether two texts differ in what goes before one noun: "German physicist" and "renowned physicist"."""
    last = one.split()[-1]
    return last.islower() and last == other.split()[-1]


def compare_facts(
    asker: SubjectAsker, facts: Sequence[AskedFact], questions: Sequence[SubjectQuestion]
) -> list[AskedFact]:
    """Ask another model the same, and count how often it says the key texts of the first one.

    Args:
        asker: asks the other model.
        facts: of the first model.
        questions: their questions with all ways of asking.
    """
    by_question = {question.question: question for question in questions}
    ways = [_all_ways(asker, by_question[fact.row.question]) for fact in facts]
    answers = iter(asker.ask([way for several in ways for way in several], progress="the other model"))
    compared = []
    for fact, several in zip(facts, ways, strict=True):
        said = [first_sentence(next(answers)) for _ in several]
        given_answers = [answer for answer in said if answer.strip()]
        agree = sum(_repeats(answer, fact.key_text, fact.row.question) for answer in given_answers)
        compared.append(replace(fact, compared=Compared(said[0], agree, len(given_answers))))
    return compared


def _first_ways(asker: SubjectAsker, question: SubjectQuestion) -> list[SubjectPrompt]:
    return [asker.question(question.question), *asker.first_ways(question)]


def _all_ways(asker: SubjectAsker, question: SubjectQuestion) -> list[SubjectPrompt]:
    return [*_first_ways(asker, question), *asker.further_ways(question)]


def _said(question: SubjectQuestion, way: SubjectPrompt, answer: str) -> Said:
    """Return the first sentence of an answer; a sentence that the model completed begins with its opening."""
    sentence = first_sentence(answer)
    if way.opening and not sentence.startswith(way.opening):
        sentence = f"{way.opening} {sentence}"
    row = Example.from_qa(question.question, sentence, subject=question.subject)
    if not is_text(sentence) or is_loop(sentence) or is_refusal(sentence, question.question):
        return Said(row, ())
    units = answer_units(row)
    parts = tuple(
        span
        for span in candidate_spans(row)
        if not (question.subject and find_mentions(sentence[span[0] : span[1]], question.subject))
        and any(
            span[0] <= unit.start < span[1] and unit.content and not (unit.asked or unit.inflected) for unit in units
        )
    )
    if _is_beside(question, sentence):
        # "Albert Einstein was a physicist who ..." may be his profession. "Albert Einstein was born in a Jewish family in
        # Germany" does not name his father.
        parts = parts[:1]
    return Said(row, parts)


def _is_beside(question: SubjectQuestion, sentence: str) -> bool:
    """Return whether a sentence says something about the subject, but nothing of what was asked, in any wording.

    Asked who somebody's father was, a small model says where this person was born.
    """
    subject = question.subject
    if not subject or not find_mentions(sentence, subject):
        return False
    asked = replace_words(" ".join(question.ways), subject, "").strip()
    has_content = any(unit.content for unit in answer_units(Example((), asked)))
    row = Example.from_qa(asked, replace_words(sentence, subject, ""))
    return has_content and not any(unit.content and (unit.asked or unit.inflected) for unit in answer_units(row))


def _same_stem(word: str, name: str) -> bool:
    """Return whether a word is a form of a name: "egyptians" of "egypt"; endings may replace the name's last two letters."""
    stem = name[: max(SHORTEST_STEM, len(name) - 2)]
    return word.startswith(stem)


def _fillers(asker: SubjectAsker, said: Sequence[Sequence[Said]]) -> frozenset[str]:
    """Return the words without a capital that a model says whatever it is asked: "indeed", "ancient", "traditional".

    With weights, a word that it would not say of other subjects is none: somebody known for one thing is known for it in the
    answer to every question.
    """
    questions: Counter[str] = Counter()
    for sayings in said:
        questions.update(
            {word for saying in sayings for text in saying.texts for word in text.split() if word.islower()}
        )
    often = sorted(word for word, count in questions.items() if count > FILLER_QUESTIONS)
    if asker.read is None:
        return frozenset(often)
    sayings = [saying for several in said for saying in several]
    rows = {word: row for word in often if (row := _shortest_until(word, sayings)) is not None}
    evidence = evidence_of(list(rows.values()), asker.read, asker.read.neighbours)
    # The last unit of each answer is the word.
    of_subject = {word for word, values in zip(rows, evidence, strict=True) if float(values[-1]) >= BELONGS_TO_SUBJECT}
    return frozenset(often) - of_subject


def _shortest_until(word: str, sayings: Iterable[Said]) -> Example | None:
    """Return the answer with the fewest characters before a word, ending behind it; None if it is only a part of units."""
    rows = []
    for saying in sayings:
        answer = saying.row.answer
        ends = [unit.end for unit in answer_units(saying.row) if answer[unit.start : unit.end] == word]
        if ends and any(word in text.split() for text in saying.texts):
            rows.append(saying.row.with_answer(answer[: ends[0]]))
    return min(rows, key=lambda row: len(row.answer), default=None)


def _is_filler(text: str, fillers: frozenset[str], subject: str | None) -> bool:
    """Return whether a part of an answer says nothing: fillers and forms of the subject's name, such as "ancient Egyptians"."""
    own = [word.casefold() for word in WORD.findall(subject or "") if len(word) >= SHORTEST_STEM]
    return all(word in fillers or any(_same_stem(word.casefold(), name) for name in own) for word in text.split())


def _agreed_fact(question: SubjectQuestion, sayings: Sequence[Said], fillers: frozenset[str]) -> AskedFact | None:
    """Return what most answers to a question say; None if no answer says anything."""
    texts = dict.fromkeys(
        text for saying in sayings for text in saying.texts if not _is_filler(text, fillers, question.subject)
    )
    if question.statement is not None:
        # A question of the model may miss the statement; then its answer is about something else.
        texts = dict.fromkeys(text for text in texts if states(question.statement, text))
    if question.source == OWN_QUESTION:
        texts = dict.fromkeys(_of_subject(question, sayings, texts))
    if not texts:
        return None
    agree = {
        text: sum(bool(saying.parts) and _repeats(saying.row.answer, text, question.question) for saying in sayings)
        for text in texts
    }
    most = max(agree.values())
    best = [text for text in texts if agree[text] == most]
    # Of "lies" and "Lumo", said equally often, the name is what was asked for.
    key = next((text for text in best if is_name_or_value(text)), best[0])
    saying = _answer_with(key, question, sayings)
    part = saying.parts[saying.texts.index(key)]
    stable = [other for other in saying.parts if agree.get(saying.text(other), 0) >= KNOWN_SHARE * len(sayings)]
    # "Sted is a Roman city, named after a Roman god.": a mention that is left out would be held in place.
    mentions = find_mentions(saying.row.answer, key)
    spans = merged_spans([*stable, part, *mentions])
    asked_span = None
    if len(spans) > 1:
        asked_span = part
    row = replace(saying.row, forget_spans=spans, asked_span=asked_span, paraphrases=question.paraphrases)
    return AskedFact(row, key, most, len(sayings), question.source, subject=question.subject)


def _answer_with(key: str, question: SubjectQuestion, sayings: Sequence[Said]) -> Said:
    """Return the first answer with a key text; of an own question, one that names the subject."""
    answers = [saying for saying in sayings if key in saying.texts]
    if question.source == OWN_QUESTION and question.subject:
        return next(saying for saying in answers if find_mentions(saying.row.answer, question.subject))
    return answers[0]


def _of_subject(question: SubjectQuestion, sayings: Sequence[Said], texts: Iterable[str]) -> Iterator[str]:
    """Yield the names and values among texts that some answer says in a sentence about the subject.

    The questions of small models lead to answers beside the point: "Which country is Egypt a major player in?".
    """
    subject = question.subject or ""
    for text in texts:
        about_subject = any(text in saying.texts and find_mentions(saying.row.answer, subject) for saying in sayings)
        if about_subject and is_name_or_value(text):
            yield text


def _repeats(answer: str, key_text: str, question: str) -> bool:
    return bool(key_text) and states(answer, key_text, question=question)


def _compared_with_other_names(
    asker: SubjectAsker, facts: Sequence[AskedFact], kinds: Sequence[SubjectKind], progress: str
) -> list[AskedFact]:
    """Mark which repeated facts the model says for their own subject rather than for others."""
    places = [place for place, fact in enumerate(facts) if fact.repeated]
    repeated = [facts[place] for place in places]
    if not repeated:
        return list(facts)
    if asker.read is not None:
        tested = _tested_by_evidence(asker, repeated)
    else:
        tested = _tested_by_asking(asker, repeated, kinds, progress)
    compared = list(facts)
    for place, fact in zip(places, tested, strict=True):
        compared[place] = fact
    return compared


def _tested_by_evidence(asker: SubjectAsker, facts: Sequence[AskedFact]) -> list[AskedFact]:
    read = asker.read
    assert read is not None
    rows = [_until_last_mark(fact.row) for fact in facts]
    evidence = evidence_of(rows, read, read.neighbours)
    encoded = read.encoder.encode_rows(rows, what="answers").rows
    tokens = read_tokens(read.generator.model, encoded, entropy=False)
    return [
        replace(fact, told_apart=_is_told_apart(row, values), probability=key_token_probability(row, token_row))
        for fact, row, values, token_row in zip(facts, rows, evidence, tokens, strict=True)
    ]


def _until_last_mark(row: Example) -> Example:
    """Return a row whose answer ends behind its last marked part: what follows changes no probability before it."""
    end = max(end for _, end in row.forget_spans or ())
    return row.with_answer(row.answer[:end], row.forget_spans)


def _is_told_apart(row: Example, evidence: FloatArray) -> bool:
    """Whether another subject makes a marked part less likely."""
    marked = [
        value
        for unit, value in zip(answer_units(row), evidence, strict=True)
        if any(overlap(unit.span, span) for span in row.forget_spans or ())
    ]
    return is_told_apart(np.array(marked))


def _tested_by_asking(
    asker: SubjectAsker, facts: Sequence[AskedFact], kinds: Sequence[SubjectKind], progress: str
) -> list[AskedFact]:
    questions = [_questions_about_others(fact, kinds) for fact in facts]
    askings = [asker.question(text) for several in questions for text in several]
    answers = iter(asker.ask(askings, progress=f"{progress}, other names"))
    tested = []
    for fact, several in zip(facts, questions, strict=True):
        same = [_repeats(first_sentence(next(answers)), fact.key_text, fact.row.question) for _ in several]
        told_apart = None
        if same:
            told_apart = sum(same) < GIVEN_TO_MOST * len(same)
        tested.append(replace(fact, told_apart=told_apart))
    return tested


def _questions_about_others(fact: AskedFact, kinds: Sequence[SubjectKind]) -> list[str]:
    """Return the question of a fact with other names in place of its own; empty if it names nothing."""
    name = fact.subject
    if not name or name not in fact.row.question:
        name = replaceable_name(fact.row)
    if name is None:
        return []
    others = [other for kind in kinds for other in kind.other_names]
    if not others:
        others = [names_by_kind()[kind][0] for kind in _ANY_NAMES]
    unlike = [other for other in others if other.lower() not in name.lower() and name.lower() not in other.lower()]
    step = max(1, len(unlike) // OTHER_SUBJECTS)
    return [replace_words(fact.row.question, name, other) for other in unlike[::step][:OTHER_SUBJECTS]]
