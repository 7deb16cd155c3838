"""Ways to ask about a row: its question, paraphrases, in-context examples, lettered options, synonyms."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from atwu._file_reading import read_yaml
from atwu.data.chosen_options import option_letter
from atwu.data.schema import Example, Message
from atwu.evaluation.generations import Prompt
from atwu.judge.verdicts import Claim

_SHIPPED: dict[str, Any] = read_yaml(Path(__file__).with_name("shipped_texts.yaml"))
SYNONYMS: Mapping[str, str] = _SHIPPED.pop("synonyms")
"""Lower-case word -> synonym of the same grammatical form."""
FAMILY_TEMPLATES: Mapping[str, Sequence[str]] = _SHIPPED
"""Kind -> texts: templates of adversarial questions, and open-ended instructions."""

# Titles are names, whatever words they consist of.
_QUOTED = re.compile(r'("[^"]*"|“[^”]*”)')
# Lower case, since names have capitals; no parts of contractions or compounds; with the article, which a synonym may change.
_WORD = re.compile(r"(?:\b(?P<article>an?) )?(?<!['’-])\b(?P<word>[a-z]+)\b(?!['’-])")


def question_prompts(row: Example, paraphrases: int) -> list[Prompt]:
    """Return the prompts of a row's question and of at most `paraphrases` paraphrases; none for a row without question."""
    if not row.messages:
        return []
    *before, asked = row.messages
    paraphrased = (replace(asked, content=text) for text in row.paraphrases[:paraphrases])
    return [Prompt(row.messages), *(Prompt((*before, turn)) for turn in paraphrased)]


def after_examples(prompt: Prompt, examples: tuple[Message, ...]) -> Prompt:
    first, *rest = prompt.messages
    if first.role == "system":  # stays the first turn: most chat templates allow it nowhere else
        return Prompt((first, *examples, *rest))
    return Prompt((*examples, first, *rest))


def claim(row: Example, answer: str | None) -> Claim | None:
    """Return an answer as a claim, None without one; it is judged by the row's own question, also if a paraphrase was asked."""
    if answer is None:
        return None
    return Claim(question=row.question, reference=row.answer, answer=answer, facts=span_texts(row))


def span_texts(row: Example) -> tuple[str, ...]:
    """Return the labelled parts of the answer, each once; empty without labels."""
    return tuple(dict.fromkeys(row.answer[start:end] for start, end in row.forget_spans or ()))


def labelled_parts(row: Example) -> tuple[str, ...]:
    """Return the labelled parts of the answer that are not in the question."""
    return tuple(text for text in span_texts(row) if not says(row.question, text))


def says(text: str, phrase: str) -> bool:
    """Return whether a text contains a phrase as whole words, ignoring case and white space."""
    if not phrase.strip():
        return False
    return re.search(pattern_of(phrase), text, re.IGNORECASE) is not None


def pattern_of(phrase: str) -> str:
    """Return a regular expression for a phrase as whole words; scripts without spaces have no word boundaries."""
    # White space may differ between a phrase and its mention.
    body = r"\s+".join(re.escape(word) for word in phrase.split())
    first, last = phrase.strip()[:1], phrase.strip()[-1:]
    if first.isascii() and first.isalnum():
        body = rf"(?<!\w){body}"
    if last.isascii() and last.isalnum():
        body = rf"{body}(?!\w)"
    return body


def fold(text: str) -> str:
    return " ".join(text.casefold().split())


class InContextExamples:
    """Draws answered retain questions as in-context examples of a row, which can restore an unlearned answer.

    They are drawn anew for every row and question, never come from the forget set and never contain the row's key
    tokens, so the answer cannot be copied from them.
    """

    def __init__(self, retain: Sequence[Example], forget: Sequence[Example], *, count: int = 3, seed: int = 42) -> None:
        """Index the forget questions and answers, which must not be shown."""
        self._retain, self._count, self._seed = retain, count, seed
        self._questions = frozenset(fold(text) for row in forget for text in (row.question, *row.paraphrases))
        self._answers = frozenset(fold(row.answer) for row in forget)

    def of(self, row: Example, number: int) -> tuple[Message, ...]:
        """Return 2 x count alternating user and assistant turns, which depend only on (seed, row, number).

        Args:
            number: Which of the row's questions they precede: 0 for its own, then its paraphrases.
            row: Row that is asked about. Rows with its subject, or that contain one of its key tokens, are not drawn.

        Raises:
            ValueError: Fewer usable rows than `count`.
        """
        seed = f"demonstrations/{self._seed}/{number}/{row.question}\n{row.answer}"  # old name: draws stay the same
        drawn = self.rows(row, random.Random(seed))
        if len(drawn) < self._count:
            raise ValueError(
                f"only {len(drawn)} of {len(self._retain)} retain rows can be in-context examples for the question "
                f"{row.question[:60]!r}, but {self._count} are needed; give more retain rows or lower --icr-examples."
            )
        return tuple(turn for example in drawn for turn in (example.messages[-1], Message("assistant", example.answer)))

    def rows(self, row: Example, rng: random.Random) -> list[Example]:
        """Draw at most `count` rows with distinct questions."""
        # An example with its question, its answer, its subject or a key token would give the fact away.
        questions = {fold(text) for text in (row.question, *row.paraphrases)}
        answer = fold(row.answer)
        names = list(labelled_parts(row))
        if row.subject:
            names.append(row.subject)
        drawn: list[Example] = []
        for other in _draw_all(self._retain, rng):
            if len(drawn) == self._count:
                break
            # An example is one turn: no conversation, and no text.
            if sum(turn.role != "system" for turn in other.messages) != 1:
                continue
            if row.subject is not None and other.subject == row.subject:
                continue
            question, other_answer = fold(other.question), fold(other.answer)
            if question in questions or question in self._questions:
                continue
            if other_answer == answer or other_answer in self._answers:
                continue
            if any(says(f"{other.question}\n{other.answer}", name) for name in names):
                continue
            questions.add(question)
            drawn.append(other)
        return drawn


def _draw_all(rows: Sequence[Example], rng: random.Random) -> Iterator[Example]:
    """Yield all rows in random order; drawing few of many rows is cheap."""
    moved: dict[int, int] = {}
    # Fisher and Yates, with the moved rows alone in memory.
    for place in range(len(rows)):
        pick = rng.randrange(place, len(rows))
        yield rows[moved.get(pick, pick)]
        moved[pick] = moved.get(place, place)


def with_synonyms(question: str, rng: random.Random, *, keep_out: Sequence[str] = ()) -> str:
    """Replace lower-case words by synonyms; names, quoted titles and first words are kept.

    Args:
        rng: Chooses which words are kept if there are more than two to replace.
        keep_out: Phrases that a synonym must not contain.
    """
    known = [word for word in dict.fromkeys(question.split()) if word.strip(".,?!") in SYNONYMS]
    stays = set(rng.sample(known, len(known) // 3))

    def swap(match: re.Match[str]) -> str:
        article, word = match.group("article"), match.group("word")
        other = SYNONYMS.get(word)
        if other is None or word in stays or any(says(other, phrase) for phrase in keep_out):
            return match.group()
        if article is None:
            return other
        if other[0] in "aeiou":
            return f"an {other}"
        return f"a {other}"

    pieces = _QUOTED.split(question)
    return "".join(piece if place % 2 else _WORD.sub(swap, piece) for place, piece in enumerate(pieces))


def introduce_subject(question: str, subject: str, frame: str) -> str:
    """Name the subject first, by the template `frame`, and refer to it as "this person" in the question."""
    asked = re.sub(pattern_of(subject), "this person", question, flags=re.IGNORECASE)
    return frame.format(subject=subject, question=asked[:1].upper() + asked[1:])


def letter_options(options: Sequence[str]) -> str:
    return "\n".join(f"{letter}) {option}" for letter, option in zip(ascii_uppercase, options, strict=False))


def resolve_choice(reply: str, options: Sequence[str]) -> str:
    """Replace the option letter of a reply by the option's text; following words are kept unless they repeat the
    option.

    Without options, and for a reply without a valid leading letter or with several letters, return the reply unchanged.
    """
    lettered = option_letter(reply, len(options))
    if lettered is None:
        return reply
    option, rest = options[lettered[0]], lettered[1]
    if rest.casefold().startswith(option.casefold()):
        return rest
    return f"{option} {rest}".strip()
