"""Put questions to a model, in this process or behind a server, and collect what it says.

Prompts that get no answer, from a server or because they are too long, cost these answers alone: they are counted, and named in
one line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from atwu.data.form_phrases import form_phrases
from atwu.data.languages import detect_language
from atwu.data.passages import find_sentence_end
from atwu.data.render import with_system
from atwu.data.schema import Message
from atwu.errors import AtwuError
from atwu.evaluation.generations import Decoding, GenerationStore, Generator, Prompt, generate_all
from atwu.request.asking.subject_templates import SubjectQuestion, is_question
from atwu.request.row_facts import ModelReader

ANSWER_TOKENS = 32
"""Tokens of an answer; most first sentences of small chat models end before."""
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
        tokens: int = ANSWER_TOKENS,
        stop: tuple[str, ...] = (),
        progress: str,
    ) -> list[str]:
        """Return the answers, in order; an empty one where a server gave none, or where the prompt is too long for the model.

        Raises:
            AtwuError: there is no answer at all.
        """
        earlier_failures = len(self.failures)
        answers = [""] * len(askings)
        too_long = self.too_long(askings)
        self.failures += [reason for reason in too_long if reason is not None]
        for temperature in sorted({asking.temperature for asking in askings}):
            places = [
                place
                for place, asking in enumerate(askings)
                if asking.temperature == temperature and too_long[place] is None
            ]
            decoding = Decoding(max_new_tokens=tokens, temperature=temperature, seed=self.seed, stop=stop)
            prompts = [askings[place].prompt for place in places]
            texts = generate_all(self.generator, prompts, decoding, store=self._store(), progress=progress)
            for place, text in zip(places, texts, strict=True):
                answers[place] = text.answer
                if text.error is not None:
                    self.failures.append(text.error)
        self.asked += len(askings)
        failed = len(self.failures) - earlier_failures
        if askings and failed == len(askings):
            raise AtwuError(f"none of {failed} prompts got an answer ({progress}): {self.failures[-1]}")
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

    def question(self, text: str, *, temperature: float = 0.0, draw: int = 0) -> SubjectPrompt:
        """Return a question in a conversation of its own."""
        messages = with_system((Message("user", text),), self.system)
        return SubjectPrompt(Prompt(messages, draw=draw), temperature)

    def opening(self, text: str) -> SubjectPrompt:
        """Return a text to continue; a served model is asked to, since servers take no text without a conversation."""
        if self.read is not None:
            return SubjectPrompt(Prompt((), prefill=text), opening=text)
        complete = _phrases(text).get("complete", ("{opening}",))[0]
        return self.question(complete.replace("{opening}", text))

    def first_ways(self, question: SubjectQuestion) -> list[SubjectPrompt]:
        """Return the other ways in which a question is written; of one without others, generic ways."""
        ways = [self.question(way) if is_question(way) else self.opening(way) for way in question.ways[1:]]
        return ways or self._generic_ways(question.question)[:2]

    def further_ways(self, question: SubjectQuestion) -> list[SubjectPrompt]:
        """Return generic ways of asking, and sampled answers to the question."""
        generic = self._generic_ways(question.question)
        if len(question.ways) == 1:
            generic = generic[2:]
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
