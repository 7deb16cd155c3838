"""Rewrite the question of a row in other forms that ask for the same fact, by rule and without a model.

A model that unlearned one form of a question may still answer another (SUITE, arXiv 2607.09236). Every form is a
question-answer row, so it can be trained on, evaluated, or paired with the same form of a retain row.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from atwu._names import lookup
from atwu.data.key_token_spans import key_token_spans
from atwu.data.schema import Example, Message, Span, merged_spans

BLANK = "____"
LETTERS = "ABCD"
MAX_DISTRACTORS = 20
"""Wrong options that are looked at, at most."""
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
        Form -> row, in the order of `forms`; a form that the row does not allow is left out (no sentence to complete before
        a key token at the beginning, no reversed question without a subject in the answer). A plain text row has only the
        form `question`, itself.

    Raises:
        ValueError: an unknown form.
    """
    for name in forms:
        lookup("form", name, FORMS)
    if not row.messages or not key_spans:
        return {"question": row} if "question" in forms else {}
    written = {name: FORMS[name](row, key_spans, distractors) for name in forms}
    return {name: each for name, each in written.items() if each is not None}


@dataclass(frozen=True, slots=True)
class FormRow:
    """A row written in one of its forms."""

    form: str
    index: int
    """Index of the row."""
    row: Example
    wanted: str
    """Text that shows in an answer that the fact is known: the key text, or the subject for reversed forms."""
    opening: str = ""
    """Beginning of the text up to the key text, for a form without a question."""

    @property
    def options(self) -> tuple[str, ...]:
        """The options that the question lists, in their order; empty for a form without options."""
        if self.form == "multiple_choice":
            return tuple(line[3:] for line in self.row.question.splitlines()[-len(LETTERS) :] if line[1:3] == ") ")
        if self.form == "either_or":
            return tuple(self.row.question.rpartition(" Is it ")[2].removesuffix("?").split(" or ", 1))
        return ()


def rows_in_forms(rows: Sequence[Example], forms: Sequence[str]) -> list[FormRow]:
    """Write rows in all of several forms that they allow; key texts of the other rows are wrong options.

    Args:
        rows: rows of any kind.
        forms: names from `FORMS`.

    Returns:
        The forms of the first row, then those of the second, and so on.

    Raises:
        ValueError: an unknown form.
    """
    spans = [key_token_spans(row) for row in rows]
    keys = [key_text(row.answer, each) if each else "" for row, each in zip(rows, spans, strict=True)]
    found = []
    for index, row in enumerate(rows):
        others = tuple(key for key in (*keys[index + 1 :], *keys[:index]) if key)[:MAX_DISTRACTORS]
        for name, written in question_forms(row, spans[index], forms=forms, distractors=others).items():
            wanted = str(row.subject) if name in REVERSED_FORMS else keys[index]
            opening = "" if written.messages else row.answer[: spans[index][0][0]].rstrip() if spans[index] else ""
            found.append(FormRow(name, index, written, wanted, opening))
    return found


def read_forms(text: str) -> tuple[str, ...]:
    """Read the value of `--forms`: `none` (no names), `auto` (`TRAINED_FORMS`), or names separated by commas.

    Raises:
        ValueError: an unknown form.
    """
    if text in ("none", "auto"):
        return () if text == "none" else TRAINED_FORMS
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        lookup("form", name, FORMS)
    return names


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


def _emphasis(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example:
    secret = key_text(row.answer, key_spans)
    start, text = row.answer.index(secret), f"**{secret}**"
    # The asterisks belong to the key text: a preserve loss before them would hold the plain key text in place.
    whole = ((start, start + len(text)),)
    return replace(row, answer=row.answer.replace(secret, text, 1), forget_spans=whole, paraphrases=())


def _paraphrase(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    return _asked(row, row.paraphrases[0], row.answer) if row.paraphrases else None


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


def _missing_word(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    secret = key_text(row.answer, key_spans)
    around = row.answer.replace(secret, "(...)")
    if len(re.findall(r"[^\W_]+", around)) < 2:
        return None
    return _asked(row, f"{around} Which words are missing in the brackets?", secret)


def _complete(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    before = _before_key(row, key_spans)
    return None if before is None else _asked(row, f"Complete this sentence: {before}", _from_key(row, key_spans))


def _finish(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    before = _before_key(row, key_spans)
    asked = f'I started to write "{before} ..." and stopped. How does it go on?'
    return None if before is None else _asked(row, asked, row.answer)


def _continuation(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    return None if _before_key(row, key_spans) is None else replace(row, messages=(), paraphrases=())


def _quiz_host(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example:
    asked = f"You are the host of a quiz show and no candidate knew: {row.question} Read out the solution on your card."
    return _asked(row, asked, row.answer)


def _reversed(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    without = _without_subject(row, key_spans, BLANK)
    return None if without is None else _asked(row, f"Fill in the blank: {without}", str(row.subject))


def _who_is_meant(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    without = _without_subject(row, key_spans, "X")
    return None if without is None else _asked(row, f"Who or what is X? {without}", f"X is {row.subject}.")


def _reversed_question(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    without = _without_subject(row, key_spans, "who or what")
    return (
        None if without is None else _asked(row, f"{without[0].upper()}{without[1:].rstrip('. ')}?", f"{row.subject}.")
    )


def _multiple_choice(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    secret = key_text(row.answer, key_spans)
    wrong = [text for text in dict.fromkeys(distractors) if text.lower() != secret.lower()][: len(LETTERS) - 1]
    if not wrong:
        return None
    options = [secret, *wrong]
    random.Random(row.question).shuffle(options)
    listed = "\n".join(f"{letter}) {text}" for letter, text in zip(LETTERS, options, strict=False))
    return _asked(row, f"{row.question}\n{listed}", f"{LETTERS[options.index(secret)]}) {secret}")


def _either_or(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example | None:
    secret = key_text(row.answer, key_spans)
    wrong = next((text for text in distractors if text.lower() != secret.lower()), None)
    if wrong is None:
        return None
    options = [secret, wrong]
    random.Random(row.answer).shuffle(options)
    return _asked(row, f"{row.question} Is it {options[0]} or {options[1]}?", secret)


def _yes_no(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example:
    return _asked(
        row, f"{row.question} Is the answer {key_text(row.answer, key_spans)}? Explain.", f"Yes. {row.answer}"
    )


def _two_turns(row: Example, key_spans: Sequence[Span], distractors: Sequence[str]) -> Example:
    turns = (Message("user", "I have a question for you."), Message("assistant", "Sure, what would you like to know?"))
    return replace(row, messages=(*row.messages[:-1], *turns, row.messages[-1]), paraphrases=())


FORMS: Mapping[str, Form] = {
    "question": _question,
    "emphasis": _emphasis,
    "blank": _blank,
    "complete": _complete,
    "multiple_choice": _multiple_choice,
    "reversed": _reversed,
    "paraphrase": _paraphrase,
    "prefix": _prefix,
    "lower_case": _lower_case,
    "two_turns": _two_turns,
    "quiz_host": _quiz_host,
    "missing_word": _missing_word,
    "finish": _finish,
    "continuation": _continuation,
    "either_or": _either_or,
    "who_is_meant": _who_is_meant,
    "reversed_question": _reversed_question,
    "yes_no": _yes_no,
}
"""Name of a form -> how a row is written in it."""
TRAINED_FORMS = ("question", "blank", "complete", "multiple_choice", "reversed")
"""Forms that `--forms auto` trains on."""
CHANCE: Mapping[str, float] = {"multiple_choice": 1 / len(LETTERS), "either_or": 1 / 2}
"""Share of right answers of a model that guesses, for forms that list the key text among options."""
REVERSED_FORMS = ("reversed", "who_is_meant", "reversed_question")
"""Forms that ask for the subject of a row."""
UNMEASURED = ("emphasis", "yes_no")
"""Forms to train on only: `emphasis` has the row's own question, and `yes_no` says the key text itself."""


def _before_key(row: Example, key_spans: Sequence[Span]) -> str | None:
    """The beginning of the answer up to its first key token; None if it has less than two words."""
    before = row.answer[: key_spans[0][0]].rstrip()
    return before if len(before.split()) >= 2 else None


def _without_subject(row: Example, key_spans: Sequence[Span], instead: str) -> str | None:
    """The answer with something else for its subject; None if it does not name the subject apart from the key text."""
    subject = row.subject
    if not subject or subject not in row.answer or subject in key_text(row.answer, key_spans):
        return None
    return row.answer.replace(subject, instead)


def _from_key(row: Example, key_spans: Sequence[Span]) -> str:
    return row.answer[key_spans[0][0] :]


def _asked(row: Example, question: str, answer: str) -> Example:
    """The row with another question and answer; the same words are labelled, or the whole answer if it has none of them."""
    spans = row.forget_spans
    if spans is not None:
        texts = [row.answer[start:end] for start, end in spans]
        places = [(answer.find(text), len(text)) for text in texts]
        spans = merged_spans((place, place + length) for place, length in places if place >= 0) or ((0, len(answer)),)
    messages = (*row.messages[:-1], Message("user", question))
    return replace(row, messages=messages, answer=answer, forget_spans=spans, paraphrases=())
