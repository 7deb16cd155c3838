"""What a model knows of a document: passages that it continues word for word, and questions that the passages answer."""

from __future__ import annotations

from collections.abc import Sequence

from atwu.benchmarks.base import evenly_spaced
from atwu.data.passages import Passage, sentences, word_spans
from atwu.data.recitation import compare_wording
from atwu.request.asking.asked_facts import RecitedText
from atwu.request.asking.own_statements import questions_from
from atwu.request.asking.subject_asker import SubjectAsker, SubjectPrompt
from atwu.request.asking.subject_templates import SubjectQuestion

_TOKENS_PER_WORD = 2
MOST_TOKENS = 96


def recite(asker: SubjectAsker, chosen: Sequence[Passage]) -> list[RecitedText]:
    """Return how much of each passage the model continues word for word from its first third."""
    longest = max((len(word_spans(passage.rest)) for passage in chosen), default=0)
    tokens = max(1, min(MOST_TOKENS, _TOKENS_PER_WORD * longest))
    askings = [_continuation(asker, passage.opening, tokens) for passage in chosen]
    answers = asker.ask(askings, progress="passages")
    return [_recited(passage, answer) for passage, answer in zip(chosen, answers, strict=True)]


def _continuation(asker: SubjectAsker, opening: str, tokens: int) -> SubjectPrompt:
    if asker.read is not None:
        return asker.opening(opening, tokens=tokens)
    return asker.question(f"Continue this text word for word, without comment:\n\n{opening}", tokens=tokens)


def _recited(passage: Passage, said: str) -> RecitedText:
    compared = compare_wording(passage.opening, passage.rest, said.removeprefix(passage.opening))
    words = len(word_spans(passage.opening))
    return RecitedText(passage.text, words, said, compared.share, compared.rouge_l, compared.longest_run)


def document_questions(asker: SubjectAsker, chosen: Sequence[Passage]) -> list[SubjectQuestion]:
    """Return questions of the model, one for the first sentence of each passage that it finds one for."""
    statements = [sentence for passage in chosen for sentence in sentences(f"{passage.text}\n")[:1]]
    return list(questions_from(asker, list(dict.fromkeys(statements)), source="document").values())


def choose_passages(every: Sequence[Passage], limit: int) -> list[Passage]:
    """Return at most so many passages, evenly spaced over the document."""
    return list(evenly_spaced(every, limit))
