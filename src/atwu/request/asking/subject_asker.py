"""Put questions to a model, in this process or behind a server, and collect what it says of a subject.

Prompts that get no answer, from a server or because they are too long, cost these answers alone: they are counted, and named in
one line. The kind of a subject is found from what the model says that the name is, else from the names that it reads alike.
What the model says about a subject by itself becomes questions, too; nothing there has to be right: every question is asked
like any other, and what the model does not repeat is dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from atwu.data.answer_units import candidate_spans
from atwu.data.fact_blanks import find_mentions
from atwu.data.languages import WORD, detect_language, form_phrases
from atwu.data.matching import states
from atwu.data.passages import find_sentence_end, sentences
from atwu.data.render import with_system
from atwu.data.schema import Example, Message
from atwu.errors import AtwuError
from atwu.evaluation.generations import Decoding, GenerationStore, Generator, Prompt, generate_all
from atwu.request.asking.subject_templates import OWN_QUESTION, SubjectKind, SubjectQuestion, is_question
from atwu.request.row_facts import ModelReader

ANSWER_TOKENS = 24
"""Tokens of an answer: two repetitions of the question. Small chat models rarely name the answer later, but go on for long."""
COMPLETION_TOKENS = 16
"""Tokens with which a sentence is completed: what completes "The capital of Egypt is" stands at its beginning."""
FIRST_WAYS = 2
"""Further ways that are asked first, at least: where no two of three answers agree, hardly a fact is known."""
TEMPERATURES = (0.4, 0.7)
"""Temperatures at which a question is asked again: what a model knows survives both. At 1.0 a model of 135M parameters answers
one question in two beside the point, whether it knows the answer or not."""
_CLAUSE_END = re.compile(r"[,;:]\s")
_LIST_ITEM = re.compile(r"^[ \t]*(?:\d+[.)]|[-*•])[ \t]+(\S.*)$", re.MULTILINE)
_ITEM_END = re.compile(r"[:,]\s|\s[-–—]\s|[.!?](?:\s|$)")
"""End of an item itself: what follows is said about it."""
_FEWEST_WORDS = 3
"""Words of a sentence that was cut at a comma, at least."""


@dataclass(frozen=True, slots=True)
class SubjectPrompt:
    """One way of asking for a fact."""

    prompt: Prompt
    temperature: float = 0.0
    opening: str = ""
    """What a text without a conversation continues; it is no part of the answer."""
    tokens: int = ANSWER_TOKENS
    """Tokens of the answer, at most."""


@dataclass
class SubjectAsker:
    """Asks one model.

    Args:
        generator: the model.
        system: system prompt of every question.
        seed: seed of sampled answers.
        read: reads rows with the model's weights; None for a served model.
    """

    generator: Generator
    system: str | None = None
    seed: int = 0
    read: ModelReader | None = None
    failures: list[str] = field(default_factory=list)
    """Why prompts got no answer, one text for each."""
    asked: int = 0

    def ask(
        self,
        askings: Sequence[SubjectPrompt],
        *,
        stop: tuple[str, ...] = (),
        progress: str,
    ) -> list[str]:
        """Return the answers, in order; an empty one where a server gave none, or where the prompt is too long for the model.

        Raises:
            AtwuError: there is no answer at all.
        """
        self.asked += len(askings)
        answers = [""] * len(askings)
        too_long = self.too_long(askings)
        failures = [reason for reason in too_long if reason is not None]
        readable = [place for place, reason in enumerate(too_long) if reason is None]
        answered = 0
        for temperature, tokens in sorted({(askings[place].temperature, askings[place].tokens) for place in readable}):
            places = [
                place
                for place in readable
                if (askings[place].temperature, askings[place].tokens) == (temperature, tokens)
            ]
            decoding = Decoding(max_new_tokens=tokens, temperature=temperature, seed=self.seed, stop=stop)
            prompts = [askings[place].prompt for place in places]
            texts = generate_all(self.generator, prompts, decoding, store=self._store(), progress=progress)
            for place, text in zip(places, texts, strict=True):
                answers[place] = text.answer
                if text.error is not None:
                    failures.append(text.error)
            answered += sum(text.error is None for text in texts)
            if not answered:
                break  # a server that answers nothing is not asked for the rest
        self.failures += failures
        if failures and not answered:
            raise AtwuError(f"none of {len(failures)} prompts got an answer ({progress}): {failures[-1]}")
        return answers

    def too_long(self, askings: Sequence[SubjectPrompt]) -> list[str | None]:
        """Return of each prompt why the model cannot read it; None where it can. A server says so itself when it is asked."""
        if self.read is None:
            return [None] * len(askings)
        return self.read.generator.too_long([asking.prompt for asking in askings])

    def _store(self) -> GenerationStore | None:
        if self.read is None:
            return None  # a served model may change under its name
        return GenerationStore()

    def question(
        self, text: str, *, temperature: float = 0.0, draw: int = 0, tokens: int = ANSWER_TOKENS
    ) -> SubjectPrompt:
        """Return a question in a conversation of its own."""
        messages = with_system((Message("user", text),), self.system)
        return SubjectPrompt(Prompt(messages, draw=draw), temperature, tokens=tokens)

    def opening(self, text: str, *, tokens: int = COMPLETION_TOKENS) -> SubjectPrompt:
        """Return a text to continue; a served model is asked to, since servers take no text without a conversation."""
        if self.read is not None:
            return SubjectPrompt(Prompt((), prefill=text), opening=text, tokens=tokens)
        complete = _phrases(text).get("complete", ("{opening}",))[0]
        return self.question(complete.replace("{opening}", text))

    def first_ways(self, question: SubjectQuestion) -> list[SubjectPrompt]:
        """Return the other ways in which a question is written, and generic ones if there are fewer than `FIRST_WAYS`."""
        ways = [self.question(way) if is_question(way) else self.opening(way) for way in question.ways[1:]]
        return [*ways, *self._generic_ways(question.question)[: max(0, FIRST_WAYS - len(ways))]]

    def further_ways(self, question: SubjectQuestion) -> list[SubjectPrompt]:
        """Return the generic ways that are left, and sampled answers to the question."""
        generic = self._generic_ways(question.question)[max(0, FIRST_WAYS - len(question.ways) + 1) :]
        return [*generic, *(self.question(question.question, temperature=value) for value in TEMPERATURES)]

    def _generic_ways(self, question: str) -> list[SubjectPrompt]:
        phrases = _phrases(question)
        ways = []
        if "prefix" in phrases:
            ways.append(self.question(phrases["prefix"][0].replace("{question}", question)))
        if "two_turns" in phrases:
            user, assistant = phrases["two_turns"]
            turns = (Message("user", user), Message("assistant", assistant), Message("user", question))
            ways.append(SubjectPrompt(Prompt(with_system(turns, self.system))))
        lower = question.lower().rstrip("?. ？。؟")
        if lower != question.rstrip("?. ？。؟"):
            ways.append(self.question(lower))
        return ways


def _phrases(text: str) -> dict[str, tuple[str, ...]]:
    return dict(form_phrases().get(detect_language(text), {}))


def first_sentence(answer: str) -> str:
    """Return the first sentence of an answer; one that was cut off ends before its last comma, and with a full stop.

    Of an answer that begins with a list, these are the items without what is said about them.
    """
    text = _without_list(answer.strip())
    end = find_sentence_end(text)
    while end is not None and not text[: end[0]].strip(" *#-\"'"):
        text = text[end[1] :].strip()
        end = find_sentence_end(text)
    if end is not None:
        return text[: end[1]].strip()
    clauses = [match.start() for match in _CLAUSE_END.finditer(text)]
    whole = [end for end in clauses if len(text[:end].split()) >= _FEWEST_WORDS]
    cut_off = len(text.split()) > ANSWER_TOKENS // 2
    if whole and cut_off:
        return f"{text[: whole[-1]]}."
    return text


def _without_list(text: str) -> str:
    """Return the items of a list as one sentence; another text as it is."""
    if not _LIST_ITEM.match(text):
        return text
    items = [_ITEM_END.split(item)[0].strip(" *") for item in _LIST_ITEM.findall(text)]
    return f"{', '.join(dict.fromkeys(filter(None, items)))}."


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
            return FoundKind((listed,), f"{name}: kind {listed.name}, like {other} (--kind changes it)")
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
    return [names[0] for names in asker.read.neighbours.nearest([name])[name].values()]


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
    return FoundKind((kinds[first],), f"{name}: kind {first}, as {votes} of {answers} answers say")


def _kind_in(answer: str, name: str, kinds: Mapping[str, SubjectKind]) -> str | None:
    """Return the kind of the first word in an answer that names one, behind the subject itself."""
    sentence = first_sentence(answer).lower()
    behind = sentence.partition(name.lower())[2] or sentence
    for word in WORD.findall(behind):
        for kind in kinds.values():
            if word in kind.words:
                return kind.name
    return None


_REQUESTS = (
    "Tell me some facts about {name}.",
    "What should everybody know about {name}?",
    "Write three short sentences about the history of {name}.",
)
STATEMENT_TEMPERATURE, STATEMENT_DRAWS = 0.7, 2
"""How each request is answered: above temperature 0 a model tells more, and what it makes up is dropped when it is asked. One
temperature is one batch: of so few texts, each token costs as much time as of many."""
_STATEMENT_TOKENS = 64
_QUESTION_TOKENS = 20
MOST_STATEMENTS = 12
"""Statements that are turned into questions, at most."""
_LONGEST_STATEMENT = 30
"""Words of a statement, at most: of longer ones small models ask vague questions."""
_SHOWN = (
    ("The Amazon flows through Brazil.", "Which river flows through Brazil?"),
    ("Marie Curie won the Nobel Prize in Physics in 1903.", "Which prize did Marie Curie win in 1903?"),
    ("Toyota has its headquarters in Aichi.", "Where does Toyota have its headquarters?"),
)
"""Statements with their questions, as the model is shown them."""


def own_questions(asker: SubjectAsker, subject: str) -> list[SubjectQuestion]:
    """Return questions whose answers are what a model says about a subject by itself."""
    requests = [request.replace("{name}", subject) for request in _REQUESTS]
    askings = [
        asker.question(request, temperature=STATEMENT_TEMPERATURE, draw=draw, tokens=_STATEMENT_TOKENS)
        for draw in range(STATEMENT_DRAWS)
        for request in requests
    ]
    texts = asker.ask(askings, progress=f"what it says about {subject} by itself")
    statements = [sentence for text in texts for sentence in sentences(text) if _is_statement(sentence, subject)]
    chosen = list(dict.fromkeys(statements))[:MOST_STATEMENTS]
    questions = questions_from(asker, chosen, subject=subject, source=OWN_QUESTION).values()
    return list({question.question.lower(): question for question in questions}.values())


def questions_from(
    asker: SubjectAsker, statements: Sequence[str], *, source: str, subject: str | None = None
) -> dict[str, SubjectQuestion]:
    """Return statement -> a question of the model that it answers, without questions that show their answer.

    Args:
        subject: what every question must name; None if it may be about anything.
    """
    askings = [_question_asking(asker, statement) for statement in statements]
    written = asker.ask(askings, stop=("\n",), progress="questions about its statements")
    questions: dict[str, SubjectQuestion] = {}
    for statement, text in zip(statements, written, strict=True):
        question = text.partition("?")[0].strip() + "?"
        if _asks_for_part(question, statement, subject):
            questions[statement] = SubjectQuestion((question,), source, subject, statement)
    return questions


def _question_asking(asker: SubjectAsker, statement: str) -> SubjectPrompt:
    shown = "\n\n".join(f"Sentence: {said}\nQuestion: {question}" for said, question in _SHOWN)
    text = f"{shown}\n\nSentence: {statement}\nQuestion:"
    if asker.read is not None:
        return SubjectPrompt(Prompt((), prefill=text), tokens=_QUESTION_TOKENS)
    return asker.question(f"Write one question that the last sentence answers.\n\n{text}", tokens=_QUESTION_TOKENS)


def _is_statement(sentence: str, subject: str) -> bool:
    named = bool(find_mentions(sentence, subject))
    return named and sentence.endswith((".", "。")) and len(sentence.split()) <= _LONGEST_STATEMENT


def _asks_for_part(question: str, statement: str, subject: str | None) -> bool:
    """Whether a question has enough words, names the subject, and leaves out something that the statement says."""
    if len(question.split()) < 4:
        return False
    if subject is not None and not find_mentions(question, subject):
        return False
    row = Example.from_qa(question, statement)
    parts = [statement[start:end] for start, end in candidate_spans(row)]
    return any(not states(question, part) for part in parts)
