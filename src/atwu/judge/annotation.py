"""Annotate rows with a chat model: find the parts of each answer that carry the fact (`forget_spans`).

Methods with labels train on them, and token scores are compared with them. The published labels of TOFU were made in
this way (Zhou et al. 2025, arXiv 2506.03142).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from atwu.data.labelled_words import label_words
from atwu.data.schema import Example, Span, merged_spans
from atwu.judge.asker import Asker, Unscored
from atwu.judge.budget import CallEstimate
from atwu.judge.chat_model import ANNOTATION, ChatRequest, rubric_request
from atwu.judge.prompted import json_object


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
        parts = [f"{new} of {len(self.rows)} rows labelled"]
        parts += [f"{self.had} had labels, which are kept"] if self.had else []
        parts += [f"{self.without} have no labelled words"] if self.without else []
        parts += [f"{self.absent} parts are not in the answer and were dropped"] if self.absent else []
        parts += [f"{self.failed} stay unlabelled (no readable reply)"] if self.failed else []
        return "; ".join(parts) + "."


def annotate_rows(rows: Sequence[Example], asker: Asker) -> AnnotatedRows:
    """Let a model label the key parts of every answer without labels, in column forget_spans."""
    requests = [_request(row) for row in rows if row.forget_spans is None]
    replies = iter(asker.ask(requests, _read, description="annotate"))
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
    return _counted(rows, labelled, absent=absent, failed=failed)


def estimate_annotation(rows: Sequence[Example], asker: Asker) -> CallEstimate:
    requests = [_request(row) for row in rows if row.forget_spans is None]
    return asker.estimate(requests, _read)


def annotate_by_rule(rows: Sequence[Example], rule: Callable[[Example], Iterable[Span]]) -> AnnotatedRows:
    """Label rows with a rule that returns the spans of an answer's key parts."""
    labelled = [
        row if row.forget_spans is not None else replace(row, forget_spans=merged_spans(rule(row))) for row in rows
    ]
    return _counted(rows, labelled, absent=0, failed=0)


def piece_spans(piece: str, answer: str) -> tuple[Span, ...]:
    """Return where an answer contains a part: as whole words, ignoring case; in scripts without spaces, anywhere."""
    if not piece.strip():
        return ()
    (row,) = label_words([Example((), answer)], [piece])
    if row.forget_spans or piece.isascii():
        return row.forget_spans or ()
    start = answer.find(piece)
    return ((start, start + len(piece)),) if start >= 0 else ()


def _counted(before: Sequence[Example], after: Sequence[Example], *, absent: int, failed: int) -> AnnotatedRows:
    had = sum(row.forget_spans is not None for row in before)
    new = zip(before, after, strict=True)
    without = sum(old.forget_spans is None and row.forget_spans == () for old, row in new)
    return AnnotatedRows(tuple(after), had=had, without=without, absent=absent, failed=failed)


def _request(row: Example) -> ChatRequest:
    """Build the request of a row; a row without question is described by its subject, if known."""
    question = row.question or f"(No question: a text{f' about {row.subject}' if row.subject else ''}.)"
    return rubric_request(ANNOTATION, {"question": question, "answer": row.answer})


def _read(text: str) -> list[str]:
    pieces = json_object(text).get("secrets")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError("no list of phrases under the key secrets")
    return pieces
