"""Forms of a question: ask for the fact of a row in ways that its own question does not, by rule and without a model.

A model that unlearned one form of a question may still answer another (SUITE, arXiv 2607.09236). Every form is a
question-answer row again, so it can be trained on, measured, or paired with the same form of a retain row.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from atwu.data.schema import Example, Message, Span

BLANK = "____"
LETTERS = "ABCD"
Form = Callable[[Example, Sequence[Span], Sequence[str]], Example | None]


def question_forms(
    row: Example, key_spans: Sequence[Span], *, forms: Sequence[str], distractors: Sequence[str] = ()
) -> dict[str, Example]:
    """Write a row in several forms.

    Args:
        row: a question-answer row.
        key_spans: character ranges of the key tokens in its answer.
        forms: names from `FORMS`.
        distractors: key texts of other rows, as wrong options of `multiple_choice`.

    Returns:
        Form -> row, in the order of `forms`; a form that the row does not allow is left out (no blank without a sentence
        around the key tokens, no reversed question without a subject in the answer).

    Raises:
        ValueError: an unknown form.
    """
    for name in forms:
        if name not in FORMS:
            raise ValueError(f"unknown form {name!r}; choose from {', '.join(FORMS)}.")
    if not row.messages or not key_spans:
        return {}
    written = {name: FORMS[name](row, key_spans, distractors) for name in forms}
    return {name: each for name, each in written.items() if each is not None}


def key_text(answer: str, key_spans: Sequence[Span]) -> str:
    """The part of an answer from its first key token to the last of the same run, where only blanks lie between."""
    start, end = key_spans[0]
    for next_start, next_end in key_spans[1:]:
        if answer[end:next_start].strip(" -'’"):
            break
        end = next_end
    return answer[start:end]


def _question(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example:
    return row


def _prefix(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example:
    return _asked(row, f"Please answer this question: {row.question}", row.answer)


def _lower_case(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example:
    return _asked(row, row.question.lower().rstrip("?. "), row.answer)


def _blank(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    secret = key_text(row.answer, key_spans)
    around = row.answer.replace(secret, BLANK)
    if len(re.findall(r"[^\W_]+", around)) < 2:
        return _asked(row, f"{row.question}\nThe answer is {BLANK}.", secret)
    return _asked(row, f"Fill in the blank: {around}", secret)


def _complete(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    start = key_spans[0][0]
    before = row.answer[:start].rstrip()
    if len(before.split()) < 2:
        return None
    return _asked(row, f"Complete this sentence: {before}", row.answer[start:])


def _reversed(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    secret, subject = key_text(row.answer, key_spans), row.subject
    if not subject or subject not in row.answer or subject in secret:
        return None
    return _asked(row, f"Fill in the blank: {row.answer.replace(subject, BLANK)}", subject)


def _multiple_choice(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    secret = key_text(row.answer, key_spans)
    wrong = [text for text in dict.fromkeys(distractors) if text.lower() != secret.lower()][: len(LETTERS) - 1]
    if not wrong:
        return None
    options = [secret, *wrong]
    random.Random(row.question).shuffle(options)
    listed = "\n".join(f"{letter}) {text}" for letter, text in zip(LETTERS, options, strict=False))
    return _asked(row, f"{row.question}\n{listed}", f"{LETTERS[options.index(secret)]}) {secret}")


def _yes_no(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example:
    return _asked(
        row, f"{row.question} Is the answer {key_text(row.answer, key_spans)}? Explain.", f"Yes. {row.answer}"
    )


def _two_turns(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example:
    turns = (Message("user", "I have a question for you."), Message("assistant", "Sure, what would you like to know?"))
    return replace(row, messages=(*row.messages[:-1], *turns, row.messages[-1]), paraphrases=())


FORMS: Mapping[str, Form] = {
    "question": _question,
    "prefix": _prefix,
    "lower_case": _lower_case,
    "blank": _blank,
    "complete": _complete,
    "reversed": _reversed,
    "multiple_choice": _multiple_choice,
    "yes_no": _yes_no,
    "two_turns": _two_turns,
}
"""Name of a form -> how a row is written in it."""


def _asked(row: Example, question: str, answer: str) -> Example:
    """The row with another question and answer; labels move with the text where it still holds them."""
    spans = row.forget_spans
    if spans is not None:
        shift = answer.find(row.answer) if row.answer in answer else -row.answer.find(answer)
        within = row.answer in answer or answer in row.answer
        moved = ((max(start + shift, 0), min(end + shift, len(answer))) for start, end in spans)
        spans = tuple(span for span in moved if span[0] < span[1]) or None if within else None
    messages = (*row.messages[:-1], Message("user", question))
    return replace(row, messages=messages, answer=answer, forget_spans=spans, paraphrases=())
