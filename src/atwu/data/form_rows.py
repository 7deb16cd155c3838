"""Write the rows of a set in forms of their questions, with key texts of other rows as wrong options.

What a row has no form for is listed by `missing_forms` with the reason, and said in one line by `describe_missing_forms`.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from atwu.data.english_syntax import SYNTAX_FORMS
from atwu.data.fact_blanks import FactParts, replace_words
from atwu.data.languages import WORD, beginnings, form_phrases, opposite_answer, polar_word, row_language
from atwu.data.question_forms import (
    BEGINNING_FORMS,
    OPEN_FORMS,
    OPTION_FORMS,
    FormRow,
    MissingForm,
    asked_fact,
    form_questions,
    write_forms,
)
from atwu.data.question_types import question_type
from atwu.data.row_subject import find_subject
from atwu.data.schema import Example, Message
from atwu.data.wrong_options import AskedText, wrong_options

CANDIDATES = 200
"""Other rows with a key text of the same shape, at most, among which wrong options are looked for."""
_OWN_WORDS = ("question", "emphasis", "paraphrase", "lower_case", *OPEN_FORMS, *SYNTAX_FORMS)
"""Forms whose questions users write, too."""


def rows_in_forms(
    rows: Sequence[Example], forms: Sequence[str], *, related: Sequence[Example] = (), draws: int = 1
) -> list[FormRow]:
    """Write rows in all of several forms that they allow: the forms of the first row, then those of the second, and so on.

    Args:
        related: further rows for wrong options.
        draws: number of times that a row is written in each of `OPTION_FORMS`.
    """
    written = _written(rows, forms, related=related, draws=draws)
    return [row for row in written if isinstance(row, FormRow)]


def requests_about_subjects(rows: Sequence[Example]) -> list[FormRow]:
    """Write rows as answers to further requests that name only their subject; a row without such a form has none."""
    written = []
    for open_row in rows_in_forms(rows, ("tell_about",)):
        row = rows[open_row.index]
        fact = asked_fact(row)
        if fact is None:
            continue
        subject = find_subject(row, fact)
        if subject is None:
            continue
        for request in form_phrases()[row_language(row)]["about"]:
            message = Message("user", request.format(subject=subject.text))
            written.append(replace(open_row, row=replace(open_row.row, messages=(message,))))
    return written


def missing_forms(rows: Sequence[Example], forms: Sequence[str]) -> tuple[MissingForm, ...]:
    """Return which of several forms each row does not have, and why; plain texts have none, and are left out."""
    written = _written(rows, forms, related=(), draws=1)
    return tuple(row for row in written if isinstance(row, MissingForm) and rows[row.index].messages)


def describe_missing_forms(missing: Sequence[MissingForm], *, of: int) -> str:
    """Return one line that names missing forms with their reasons; empty if none is missing.

    Args:
        of: number of rows.
    """
    reasons: dict[str, tuple[dict[str, None], set[int]]] = {}
    for form in missing:
        names, places = reasons.setdefault(form.why, ({}, set()))
        names.setdefault(form.form.replace("_", " "))
        places.add(form.index)
    return "; ".join(
        f"no {', '.join(names)} for {len(places)} of {of} rows ({why})" for why, (names, places) in reasons.items()
    )


def _written(
    rows: Sequence[Example], forms: Sequence[str], *, related: Sequence[Example], draws: int
) -> Iterator[FormRow | MissingForm]:
    everything = [*rows, *related]
    facts = [asked_fact(row) for row in everything]
    asked: list[AskedText | None] = [None] * len(everything)
    if not set(OPTION_FORMS).isdisjoint(forms):
        asked = [_asked_text(row, fact) for row, fact in zip(everything, facts, strict=True)]
    of_shape: dict[tuple[object, ...], list[int]] = {}
    for place, text in enumerate(asked):
        if text is not None:
            of_shape.setdefault(text.shape, []).append(place)
    for index, row in enumerate(rows):
        fact, own = facts[index], asked[index]
        wrong: tuple[str, ...] = ()
        opposite = opposite_answer(row)
        if opposite is not None:
            wrong = (opposite,)
        elif fact is not None and own is not None:
            # From the row behind it on, so that the rows of a large set do not all get the same first ones.
            places = of_shape[own.shape]
            behind = bisect.bisect(places, index)
            others = (asked[place] for place in (*places[behind:][:CANDIDATES], *places[: behind - 1]))
            similar = itertools.islice((text for text in others if text is not None), CANDIDATES)
            wrong = wrong_options(row, fact, own, similar)
        for draw in range(draws):
            drawn = [form for form in forms if draw == 0 or form in OPTION_FORMS]
            written = write_forms(row, fact, forms=drawn, index=index, wrong=wrong, draw=draw)
            yield from (form for form in written if draw == 0 or form.form in OPTION_FORMS)


def _asked_text(row: Example, fact: FactParts | None) -> AskedText | None:
    """Return the key text that a row asks for; None if it has none, or asks for yes or no."""
    if fact is None or not row.messages or polar_word(row) is not None:
        return None
    question = row.question
    subject = find_subject(row, fact)
    # Two questions ask for the same if they differ in their subject only.
    if row.subject:
        question = replace_words(question, row.subject, " ")
    if subject is not None:
        question = replace_words(question, subject.text, " ")
    words = frozenset(word.lower() for word in WORD.findall(question))
    return AskedText(fact.asked_text, words, question_type(row), row_language(row))


def check_no_forms(rows: Sequence[Example], written: Sequence[FormRow], *, what: str) -> None:
    """Refuse rows that hold forms of each other, or nothing but forms, as files of written forms do."""
    asked = {row.messages for row in rows if row.messages}
    rewritten = any(form.form != "question" for form in written)
    if asked and rewritten and all(form_questions().fullmatch(messages[-1].content) for messages in asked):
        raise ValueError(
            f"{what} holds nothing but forms of other rows, such as {rows[0].question!r:.80}; give the rows of which they were "
            "written, or train on these as they are with --forms none."
        )
    for form in written:
        if form.form not in _OWN_WORDS and form.row.messages in asked:
            raise ValueError(
                f"{what} already holds {form.row.question!r:.80}, the form {form.form} of {rows[form.index].question!r:.80}; "
                "give the rows without their forms, or train on these as they are with --forms none."
            )


def plain_form(text: str, forms: Collection[str]) -> str:
    """Return which of `PLAIN_FORMS` a text has by its beginning; `question`, as for a text as it was given, without `forms`."""
    form = next((name for name in BEGINNING_FORMS if text.startswith(beginnings(name))), "continuation")
    if form not in forms:
        return "question"
    return form
