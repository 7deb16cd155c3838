"""A served model whose answers follow from what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.evaluation.generations import Decoding, Generation, Prompt
from atwu.request.asking.asked_facts import AskedFact
from atwu.request.asking.subject_templates import SubjectQuestion


class Scripted:
    """A served model: what it says follows from the last message; some prompts get no answer."""

    def __init__(
        self, say: Callable[[str], str], *, fails_at: Sequence[int] = (), fails_on: tuple[str, ...] = ()
    ) -> None:
        self._say, self._fails_at, self._fails_on = say, fails_at, fails_on
        self.asked: list[str] = []
        self.identity = "scripted"

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Any], None]) -> None:
        for index, prompt in enumerate(prompts):
            text = prompt.messages[-1].content
            self.asked.append(text)
            if len(self.asked) in self._fails_at or any(words in text for words in self._fails_on):
                on_done([(index, Generation("", 0, "503 overloaded"))])
            else:
                on_done([(index, Generation(self._say(text), 5))])


def says(answers: Mapping[str, str], otherwise: str = "I don't know.") -> Callable[[str], str]:
    """Return a model that answers by words that a question contains, the first that fit."""

    def say(text: str) -> str:
        lowered = text.lower()
        for words, answer in answers.items():
            if all(word in lowered for word in words.split(" & ")):
                return answer
        return otherwise

    return say


def fail_at(generate: Callable[..., None], words: str) -> Callable[..., None]:
    """Return a generator that gives up, as a client does whose server fails again and again."""

    def fail(prompts: Sequence[Prompt], decoding: Decoding, on_done: Callable[[Any], None]) -> None:
        if any(words in prompt.messages[-1].content for prompt in prompts):
            raise AtwuError("20 requests in a row failed")
        generate(prompts, decoding, on_done)

    return fail


def question(*ways: str, subject: str | None = None) -> SubjectQuestion:
    return SubjectQuestion(ways, "template", subject)


def asked_fact(key_text: str, agree: int, probability: float | None = None) -> AskedFact:
    """A fact that so many of ten askings say."""
    row = Example.from_qa(f"What is said {agree} times?", f"It is {key_text}.")
    return AskedFact(row, key_text, agree, 10, "template", probability=probability, told_apart=True)
