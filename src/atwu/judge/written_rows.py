"""What a chat model adds to rows: paraphrases of their questions, and labels of the parts of answers that carry the fact.

A paraphrase is kept if it preserves the question's names, numbers and dates, does not contain words of the answer,
is new, is a question if the original is one, and asks for the same thing according to a second call of the model. Worst
cases over paraphrases grow with their number, so rows with fewer paraphrases than requested are counted.

Methods with labels (`forget_spans`) train on them, and token scores are compared with them. The published labels of TOFU were
made in this way (Zhou et al. 2025, arXiv 2506.03142).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from atwu.data.labelled_words import label_words
from atwu.data.schema import Example, Span, merged_spans
from atwu.judge.asker import Asker, CallEstimate, Unscored, estimate_calls
from atwu.judge.chat_model import ANNOTATION, PARAPHRASE, SAME_QUESTION, ChatRequest, rubric_request
from atwu.judge.prompted import json_object, yes_or_no
from atwu.judge.rules.normalized_words import MONTHS, Word, words_of

EMPTY = "empty"
REPEATED = "repeats the question or another paraphrase"
NO_QUESTION = "is not a question"
DROPPED = "drops a name, a number or a date"
LEAK = "contains a word of the answer"
OTHER_MEANING = "asks for something else"
UNCHECKED = "meaning could not be checked"

_TOKENS_PER_PARAPHRASE = 60
"""Room in the reply for every requested paraphrase."""
_QUESTION_MARKS = ("?", "？", "؟")
_LONG_STEM = 4
"""Minimum letters of an answer word for which longer words that start with it also reveal it ("Kelburyan")."""


@dataclass(frozen=True, slots=True)
class ParaphrasedRows:
    """Rows with their new paraphrases, in their original order, and counts of rejected candidates."""

    rows: tuple[Example, ...]
    kept: int
    rejected: Mapping[str, int]
    incomplete: int
    """Rows with fewer new paraphrases than requested."""
    failed: int
    """Rows without a readable reply; included in `incomplete`."""

    def __str__(self) -> str:
        reasons = "".join(f"; {number} rejected: {reason}" for reason, number in self.rejected.items())
        return (
            f"{self.kept} paraphrases kept{reasons}. {self.incomplete} rows have fewer new paraphrases than requested, "
            f"{self.failed} of them because the model gave no readable reply; rows without new paraphrases keep their old "
            "ones."
        )


def write_paraphrases(
    rows: Sequence[Example], asker: Asker, *, count: int, check_meaning: bool = True
) -> ParaphrasedRows:
    """Paraphrase the last user turn of rows; a row without new paraphrases keeps its old ones.

    Args:
        count: Paraphrases per row at most; half as many more are requested, since some will be rejected.
        check_meaning: Whether the model checks each remaining candidate for equal meaning, in a second call.
    """
    requests = _paraphrase_requests(rows, count)
    replies = asker.ask(requests, _read_paraphrases, description="paraphrase")
    rejected: Counter[str] = Counter()
    written = [[] if isinstance(reply, Unscored) else reply for reply in replies]
    kept = [_valid_paraphrases(row, candidates, rejected) for row, candidates in zip(rows, written, strict=True)]
    # Rules first: each candidate that they reject saves a call.
    if check_meaning:
        checks = [_meaning_request(row, text) for row, texts in zip(rows, kept, strict=True) for text in texts]
        answers = iter(asker.ask(checks, _read_same, description="check meaning"))
        same = [[(text, next(answers)) for text in texts] for texts in kept]
        kept = [[text for text, answer in texts if answer is True] for texts in same]
        others = [answer for texts in same for _, answer in texts if answer is not True]
        rejected.update(UNCHECKED if isinstance(answer, Unscored) else OTHER_MEANING for answer in others)
    return ParaphrasedRows(
        tuple(
            replace(row, paraphrases=tuple(texts[:count]) or row.paraphrases)
            for row, texts in zip(rows, kept, strict=True)
        ),
        kept=sum(min(len(texts), count) for texts in kept),
        rejected=dict(rejected.most_common()),
        incomplete=sum(len(texts) < count for texts in kept),
        failed=sum(isinstance(reply, Unscored) for reply in replies),
    )


def estimate_paraphrases(
    rows: Sequence[Example], asker: Asker, *, count: int, check_meaning: bool = True
) -> CallEstimate:
    """Estimate the most calls of `write_paraphrases`; nothing is sent.

    Candidates that are not written yet count as long as their question, and as if all passed the first checks.
    """
    requests = _paraphrase_requests(rows, count)
    stored, missing = asker.read_stored(requests, _read_paraphrases)
    total = estimate_calls(missing)
    if not check_meaning:
        return total
    known: list[ChatRequest] = []
    unknown: dict[ChatRequest, ChatRequest] = {}
    for row, request, candidates in zip(rows, requests, stored, strict=True):
        if candidates is None:
            unknown[request] = _meaning_request(row, row.question)
        else:
            known += [_meaning_request(row, text) for text in _valid_paraphrases(row, candidates, Counter())]
    later = [asker.prepare(request, 0) for request in unknown.values()] * _count_to_request(count)
    total += estimate_calls(later)
    return total + asker.estimate(known, _read_same)


def problem(row: Example, text: str) -> str | None:
    """Return why a candidate is rejected, as far as rules can tell; None: no problem found."""
    words, asked = words_of(text), words_of(row.question)
    if not words:
        return EMPTY
    if _word_texts(words) == _word_texts(asked):
        return REPEATED
    if row.question.rstrip().endswith(_QUESTION_MARKS) and not text.rstrip().endswith(_QUESTION_MARKS):
        return NO_QUESTION
    if not _names_and_numbers(asked, words_of(row.answer)) <= {word.text for word in words}:
        return DROPPED
    # The content words of the labelled parts (without labels: of the whole answer) that are not in the question.
    stems = {word.stem for word in asked}
    texts = [row.answer[start:end] for start, end in row.forget_spans or ()] or [row.answer]
    for answer in (word for text in texts for word in words_of(text) if not word.function and word.stem not in stems):
        # A script without spaces divides the words of two texts in different places.
        if not answer.text.isascii():
            revealed = answer.text in "".join(word.text for word in words)
        else:
            long = len(answer.text) >= _LONG_STEM and not answer.number
            revealed = any(word.stem == answer.stem or (long and word.text.startswith(answer.text)) for word in words)
        if revealed:
            return LEAK
    return None


def _names_and_numbers(question: Sequence[Word], answer: Sequence[Word]) -> set[str]:
    """Return names and numbers of a question. A sentence's first word is a name if the answer also capitalizes it."""
    names_in_answer = {word.text for word in answer if word.capital}
    kept = set()
    for place, word in enumerate(question):
        first = place == 0 or word.gap == "."
        name = word.capital and not word.function and (not first or word.text in names_in_answer)
        dated = word.text in MONTHS and any(near.number for near in question[max(0, place - 1) : place + 2])
        if name or dated or word.number:
            kept.add(word.text)
    return kept


def _word_texts(words: Sequence[Word]) -> tuple[str, ...]:
    return tuple(word.text for word in words)


def _valid_paraphrases(row: Example, candidates: Sequence[str], rejected: Counter[str]) -> list[str]:
    """Return the candidates without a problem; count the others by reason."""
    kept: dict[tuple[str, ...], str] = {}
    for text in (candidate.strip() for candidate in candidates):
        bare = _word_texts(words_of(text))
        reason = problem(row, text)
        # Two candidates that differ in capitals or punctuation only are one.
        if reason is None and bare in kept:
            reason = REPEATED
        if reason is None:
            kept[bare] = text
        else:
            rejected[reason] += 1
    return list(kept.values())


def _count_to_request(count: int) -> int:
    return count + (count + 1) // 2


def _paraphrase_requests(rows: Sequence[Example], count: int) -> list[ChatRequest]:
    if count < 1:
        raise ValueError(f"count must be at least 1 paraphrase per row, got {count}.")
    for number, row in enumerate(rows, start=1):
        if not row.question.strip():
            raise ValueError(f"row {number} ({row.answer[:60]!r}) has no question to paraphrase; leave it out.")
    # Some candidates will be rejected, so more are asked for.
    number = _count_to_request(count)
    cap = max(PARAPHRASE.max_tokens, _TOKENS_PER_PARAPHRASE * number)
    return [
        rubric_request(PARAPHRASE, {"question": row.question, "reference": row.answer, "count": number}, max_tokens=cap)
        for row in rows
    ]


def _meaning_request(row: Example, text: str) -> ChatRequest:
    return rubric_request(SAME_QUESTION, {"question": row.question, "paraphrase": text})


def _read_paraphrases(text: str) -> list[str]:
    candidates = json_object(text).get("paraphrases")
    if not isinstance(candidates, list) or not candidates or not all(isinstance(text, str) for text in candidates):
        raise ValueError("no list of texts under the key paraphrases")
    return candidates


def _read_same(text: str) -> bool:
    return yes_or_no(json_object(text).get("same"))


@dataclass(frozen=True, slots=True)
class AnnotatedRows:
    """Annotated rows in their original order, and counts."""

    rows: tuple[Example, ...]
    had: int
    """Rows that already had labels, which are kept."""
    without: int
    """Newly annotated rows without any labelled part."""
    absent: int
    """Parts named by the model that do not occur in the answer."""
    failed: int
    """Rows without a readable reply; they stay unlabelled."""

    def __str__(self) -> str:
        new = len(self.rows) - self.had - self.failed
        counts = {
            "had labels, which are kept": self.had,
            "have no labelled words": self.without,
            "parts are not in the answer and were dropped": self.absent,
            "stay unlabelled (no readable reply)": self.failed,
        }
        parts = [f"{number} {words}" for words, number in counts.items() if number]
        return "; ".join([f"{new} of {len(self.rows)} rows labelled", *parts]) + "."


def annotate_rows(rows: Sequence[Example], asker: Asker) -> AnnotatedRows:
    """Let a model label the key parts of every answer without labels, in column forget_spans."""
    requests = [_annotation_request(row) for row in rows if row.forget_spans is None]
    replies = iter(asker.ask(requests, _read_annotation, description="annotate"))
    labelled, absent, failed = list[Example](), 0, 0
    for row in rows:
        if row.forget_spans is not None:
            labelled.append(row)
            continue
        pieces = next(replies)
        if isinstance(pieces, Unscored):
            failed += 1
            labelled.append(row)
            continue
        places = [piece_spans(piece, row.answer) for piece in pieces]
        absent += sum(not spans for spans in places)
        labelled.append(replace(row, forget_spans=merged_spans(span for spans in places for span in spans)))
    return _count_labels(rows, labelled, absent=absent, failed=failed)


def estimate_annotation(rows: Sequence[Example], asker: Asker) -> CallEstimate:
    requests = [_annotation_request(row) for row in rows if row.forget_spans is None]
    return asker.estimate(requests, _read_annotation)


def annotate_by_rule(rows: Sequence[Example], rule: Callable[[Example], Iterable[Span]]) -> AnnotatedRows:
    """Label rows with a rule that returns the spans of an answer's key parts."""
    labelled = list(rows)
    for place, row in enumerate(rows):
        if row.forget_spans is None:
            labelled[place] = replace(row, forget_spans=merged_spans(rule(row)))
    return _count_labels(rows, labelled, absent=0, failed=0)


def piece_spans(piece: str, answer: str) -> tuple[Span, ...]:
    """Return where an answer contains a part: as whole words, ignoring case; in scripts without spaces, anywhere."""
    if not piece.strip():
        return ()
    (row,) = label_words([Example((), answer)], [piece])
    # In a script without spaces, a part has letters of other words next to it.
    if row.forget_spans or piece.isascii():
        return row.forget_spans or ()
    start = answer.find(piece)
    if start < 0:
        return ()
    return ((start, start + len(piece)),)


def _count_labels(before: Sequence[Example], after: Sequence[Example], *, absent: int, failed: int) -> AnnotatedRows:
    had = sum(row.forget_spans is not None for row in before)
    new = zip(before, after, strict=True)
    without = sum(old.forget_spans is None and row.forget_spans == () for old, row in new)
    return AnnotatedRows(tuple(after), had=had, without=without, absent=absent, failed=failed)


def _annotation_request(row: Example) -> ChatRequest:
    """Build the request of a row; a row without question is described by its subject, if known."""
    question = row.question
    if not question and row.subject:
        question = f"(No question: a text about {row.subject}.)"
    elif not question:
        question = "(No question: a text.)"
    return rubric_request(ANNOTATION, {"question": question, "answer": row.answer})


def _read_annotation(text: str) -> list[str]:
    pieces = json_object(text).get("secrets")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError("no list of phrases under the key secrets")
    return pieces
