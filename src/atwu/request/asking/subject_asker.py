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
