"""What a model knows of a document: passages that it continues word for word, and questions that the passages answer."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from atwu.benchmarks.base import evenly_spaced
from atwu.data.languages import WORD, is_unspaced
from atwu.evaluation.metrics.rouge import rouge_l_recall
from atwu.request.asking.asked_facts import RecitedText
from atwu.request.asking.own_statements import questions_from
from atwu.request.asking.subject_asker import SubjectAsker, SubjectPrompt, sentences
from atwu.request.asking.subject_templates import SubjectQuestion

FEWEST_SENTENCE_WORDS = 15
"""Words of a passage, at least; shorter sentences are joined with the next one."""
MOST_WORDS = 60
"""Words of a passage, at most; what follows in a longer sentence is the next passage."""
OPENING_SHARE = 1 / 3
"""Share of a passage that the model is given."""
_TOKENS_PER_WORD = 2
_CHARACTERS_PER_WORD = 2
"""Characters that count as a word in a script without spaces."""
MOST_TOKENS = 96


@dataclass(frozen=True, slots=True)
class Passage:
    opening: str
    rest: str

    @property
    def text(self) -> str:
        return f"{self.opening}{self.rest}"


def passages(text: str) -> list[Passage]:
    """Split a document into passages of whole sentences, each divided behind its first third."""
    parts = [part for paragraph in text.split("\n\n") for part in _sized_parts(" ".join(paragraph.split()))]
    return [passage for part in parts if (passage := _divided(part)) is not None]


def _sized_parts(paragraph: str) -> Iterator[str]:
    whole = sentences(f"{paragraph}\n")
    gathered = ""
    for sentence in whole:
        gathered = f"{gathered} {sentence}".strip()
        while len(_words(gathered)) > MOST_WORDS:
            first, gathered = _cut(gathered, MOST_WORDS)
            yield first
        if len(_words(gathered)) >= FEWEST_SENTENCE_WORDS:
            yield gathered
            gathered = ""
    if gathered:
        yield gathered


def _divided(part: str) -> Passage | None:
    count = len(_words(part))
    if count < FEWEST_SENTENCE_WORDS // 2:
        return None
    opening, _ = _cut(part, max(3, round(count * OPENING_SHARE)))
    return Passage(opening, part[len(opening) :])


def _cut(text: str, words: int) -> tuple[str, str]:
    """Cut a text behind a number of words."""
    spans = _words(text)
    end = spans[min(words, len(spans)) - 1][1]
    return text[:end], text[end:].strip()


def _words(text: str) -> list[tuple[int, int]]:
    """Return the character ranges of words; in a script without spaces, of pairs of letters."""
    spans: list[tuple[int, int]] = []
    for match in WORD.finditer(text):
        start, end = match.span()
        if not is_unspaced(match.group()):
            spans.append((start, end))
            continue
        spans += [(place, min(place + _CHARACTERS_PER_WORD, end)) for place in range(start, end, _CHARACTERS_PER_WORD)]
    return spans


def recite(asker: SubjectAsker, chosen: Sequence[Passage]) -> list[RecitedText]:
    """Return how much of each passage the model continues word for word from its first third."""
    askings = [_continuation(asker, passage.opening) for passage in chosen]
    longest = max((len(_words(passage.rest)) for passage in chosen), default=0)
    tokens = min(MOST_TOKENS, _TOKENS_PER_WORD * longest)
    answers = asker.ask(askings, tokens=max(1, tokens), progress="passages")
    return [_recited(passage, answer) for passage, answer in zip(chosen, answers, strict=True)]


def _continuation(asker: SubjectAsker, opening: str) -> SubjectPrompt:
    if asker.read is not None:
        return asker.opening(opening)
    return asker.question(f"Continue this text word for word, without comment:\n\n{opening}")


def _recited(passage: Passage, said: str) -> RecitedText:
    wanted, spoken = _folded(passage.rest), _folded(said.removeprefix(passage.opening))
    exact = 0
    while exact < min(len(wanted), len(spoken)) and wanted[exact] == spoken[exact]:
        exact += 1
    run = difflib.SequenceMatcher(None, wanted, spoken, autojunk=False).find_longest_match().size
    rouge = rouge_l_recall(passage.rest, said)
    share = exact / len(wanted) if wanted else 0.0
    return RecitedText(passage.text, len(_words(passage.opening)), said, share, rouge or 0.0, run)


def _folded(text: str) -> list[str]:
    return [text[start:end].casefold() for start, end in _words(text)]


def document_questions(asker: SubjectAsker, chosen: Sequence[Passage]) -> list[SubjectQuestion]:
    """Return questions of the model, one for the first sentence of each passage that it finds one for."""
    statements = [sentence for passage in chosen for sentence in sentences(f"{passage.text}\n")[:1]]
    return list(questions_from(asker, list(dict.fromkeys(statements)), source="document").values())


def choose_passages(every: Sequence[Passage], limit: int) -> list[Passage]:
    """Return at most so many passages, evenly spaced over the document."""
    return list(evenly_spaced(every, limit))
