"""Rows that the model writes: its answers to the forms of a question, and alternates of an answer.

A row says a fact in one wording, and its forms in another one; what the model itself says is neither. Unlearned in the row's
words alone, it goes on to state the fact in its own; retained in the row's words alone, its own lead elsewhere. Alternates are
plausible false answers (AltPO) or vague ones (ReLearn).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from atwu.benchmarks.sources import load_rows
from atwu.data.form_rows import requests_about_subjects, rows_in_forms
from atwu.data.matching import find_statements
from atwu.data.question_forms import REVERSED_FORMS, FormRow
from atwu.data.row_parsing import is_text
from atwu.data.schema import Example, Message, Span, merged_spans
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, Generation, GenerationStore, Prompt, generate_all
from atwu.request.auto_settings import Choice
from atwu.request.retain_set import FACT_TOKENS, form_answers, names, names_any, states_any

SAMPLED_FORMS = ("continuation", "statement", "tell_about")
SAMPLED_TEXTS = 3
"""Sampled continuations of each plain text in these forms, beside the greedy one: a fact may follow later in the text, phrased
differently."""
ROWS_IN_A_FORM = 40
"""Related rows that are asked in each form, about. A run of 65 steps draws some 500 retain rows that are close to its forget
rows, so that most of 120 rows in seven forms would be written and never trained on."""
_SENTENCE_END = re.compile(r"[.!?][\"'”’)*]*(?=\s|$)|\n")


def self_generated_forget_rows(
    generator: TransformersGenerator,
    rows: Sequence[Example],
    *,
    forms: Sequence[str],
    system: str | None,
    about_answers: Sequence[Example] = (),
) -> tuple[Choice, ...]:
    """Return the model's answers that state the facts of forget rows, as further forget rows.

    A text whose wording is its fact has no other wording.

    Args:
        forms: forms of the question that training uses; empty for the rows as written.
        about_answers: questions about the facts that the model answers with the subject, to be returned with the others.
    """
    asked = forms or ("question",)
    rows = [row for row in rows if row.chance_run is None]
    written = [form_row for form_row in rows_in_forms(rows, asked) if form_row.can_be_asked]
    texts = [form_row for form_row in written if form_row.form in SAMPLED_FORMS]
    if "tell_about" in asked:
        written += requests_about_subjects(rows)
    answers = form_answers(generator, written, Decoding(), system=system, progress="forms of the forget rows")
    sampled = Decoding(temperature=1.0)
    answers += form_answers(
        generator, texts, sampled, system=system, draws=SAMPLED_TEXTS, progress="texts of the forget rows"
    )
    stating = rows_that_state_the_fact([*written, *texts * SAMPLED_TEXTS], answers)
    further = (*stating, *about_answers)
    if not further:
        return ()
    why = f"{len(stating)} self-generated answers that phrase a fact differently"
    if about_answers:
        why = f"{why}, {len(about_answers)} to questions about the facts, which lead back to their subject"
    return (Choice("further_forget", load_rows(further).source, why),)


def self_generated_retain_rows(
    generator: TransformersGenerator,
    rows: Sequence[Example],
    *,
    of: int,
    forget: Sequence[Example],
    forms: Sequence[str],
    system: str | None,
    further: Sequence[Example] = (),
) -> tuple[Choice, ...]:
    """Return the model's answers to the forms of retain rows, as further retain rows.

    Args:
        rows: retain rows, with its answers to the questions as written.
        of: number of rows at the end whose forms are asked, of each form about `ROWS_IN_A_FORM`.
        forget: forget rows; answers with their names or key tokens are left out.
        further: rows to return before the answers: general and related questions that are not in the retain set.
        forms: as above.
    """
    others = [form for form in forms if form != "question"]
    written: list[FormRow] = []
    if others and of:
        first = len(rows) - of
        # Every n-th row in each form, and each form from another row on, so that all rows and all questions have their turn.
        every = math.ceil(of / ROWS_IN_A_FORM)
        turn = {form: number for number, form in enumerate(others)}
        written = [
            form_row
            for form_row in rows_in_forms(rows, others)
            if form_row.index >= first and (form_row.index + turn[form_row.form]) % every == 0
        ]
    answers = form_answers(
        generator,
        written,
        Decoding(max_new_tokens=FACT_TOKENS),
        system=system,
        progress="forms of related questions",
    )
    subjects = names(forget)
    answered = [
        _answered(form_row, answer)
        for form_row, answer in zip(written, answers, strict=True)
        if is_text(answer) and not names_any(answer, subjects) and not states_any(answer, forget)
    ]
    retain_rows = [*further, *answered]
    if not retain_rows:
        return ()
    why = f"{len(answered)} self-generated answers to other forms of related questions"
    if further:
        why = f"{why}, {len(further)} to general and related questions, which are refused otherwise"
    return (Choice("further_retain", load_rows(retain_rows).source, why),)


def _answered(form_row: FormRow, answer: str) -> Example:
    """Return a row with what the model answers; what it says after the opening of a text is labelled."""
    if not form_row.opening:
        return form_row.row.with_answer(answer)
    text = f"{form_row.opening} {answer}"
    return form_row.row.with_answer(text, ((len(form_row.opening) + 1, len(text)),))


def rows_that_state_the_fact(written: Sequence[FormRow], answers: Sequence[str]) -> tuple[Example, ...]:
    """Return a forget row for each answer of the model that states the wanted text of its row in another way than the row.

    A row says a fact in one wording; a model that unlearned this wording may still say the fact in its own: after
    unlearning "Japan is on the continent of Asia", it says "Japan is in East Asia".

    Args:
        written: forget rows in forms of their question.
        answers: the model's answer to each.

    Returns:
        Different rows with the same question, or the same opening of a plain text, and the answer up to the end of the
        sentence with the last statement of the wanted text (`find_statements`), the statements labelled.
    """
    rows: dict[tuple[tuple[Message, ...], str], tuple[Example, str, list[Span]]] = {}
    for form_row, answer in zip(written, answers, strict=True):
        statements = _statements(form_row, answer)
        if not statements:
            continue
        text, start = answer, 0
        if form_row.opening:
            text, start = f"{form_row.opening} {answer}", len(form_row.opening) + 1
        # One answer may state the facts of several rows ("Tell me about Egypt."); one without its label would be held in place.
        _, _, spans = rows.setdefault((form_row.row.messages, text), (form_row.row, text, []))
        spans += [(start + begin, start + end) for begin, end in statements]
    stating: dict[Example, None] = {}
    for row, text, spans in rows.values():
        labels = merged_spans(spans)
        said = text
        end = _SENTENCE_END.search(text, labels[-1][1])
        if end is not None:
            said = text[: end.end()]
        said = said.rstrip()
        if said.strip() != row.answer.strip() and is_text(said):
            stating.setdefault(replace(row.with_answer(said, labels), paraphrases=(), wrong_answers=()))
    return tuple(stating)


def _statements(form_row: FormRow, answer: str) -> list[Span]:
    """Return where an answer states what a row in a form asks for."""
    aliases = form_row.row.aliases
    if form_row.form in REVERSED_FORMS:
        aliases = ()  # they name the key text, which is what a reversed question says
    question = form_row.row.question
    return [
        span for part in form_row.parts for span in find_statements(answer, part, aliases=aliases, question=question)
    ]


ALTERNATE_INSTRUCTIONS = {
    "false": (
        "Invent another answer to this question. Change every name, number and fact of the answer above to something else "
        "that is plausible but false, keep what the question says, and write nothing else."
    ),
    "vague": (
        "Write another answer to this question that stays on its subject and reads well, but is vague: it must give no name, "
        "number, date, place or other fact of the answer above. Write nothing else."
    ),
}
"""Kind of alternate -> what is asked for, in our own words; the published prompts ask for the same."""
LONGEST = 200
"""Tokens of a sampled answer, as published; one that does not end by then is dropped."""


def alternate_answers(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Example],
    *,
    kind: str = "false",
    count: int = 5,
    attempts: int = 4,
    seed: int = 0,
) -> tuple[Example, ...]:
    """Sample several alternates of each row at temperature 1, and keep those that say none of its key tokens.

    Args:
        model: the original model.
        tokenizer: its tokenizer.
        rows: forget rows.
        kind: a key of `ALTERNATE_INSTRUCTIONS`; vague answers are also written for the paraphrases of a question.
        count: alternates per row.
        attempts: times that what a row still lacks is sampled.
        seed: seed of the samples.

    Returns:
        One row per alternate, with it in `alternate`; a row for which none was found, once and without one.

    Raises:
        ValueError: a plain text row, which has no question.
    """
    for number, row in enumerate(rows, start=1):
        if not row.messages:
            raise ValueError(f"forget set, row {number}: a plain text row has no question; leave it out.")
    if kind == "vague":
        rows = [asked_row for row in rows for asked_row in _with_each_paraphrase(row)]
    generator, store = TransformersGenerator(model, tokenizer), GenerationStore()
    decoding = Decoding(max_new_tokens=LONGEST, temperature=1.0, seed=seed, stop=("Question:",))
    asked = [
        (Message("user", f"Question: {row.question}\nAnswer: {row.answer}\n\n{ALTERNATE_INSTRUCTIONS[kind]}"),)
        for row in rows
    ]
    alternates: list[dict[str, None]] = [{} for _ in rows]
    for attempt in range(attempts):
        sampled = [
            (index, Prompt(messages, prefill="Alternate answer:", draw=attempt * count + number))
            for index, messages in enumerate(asked)
            for number in range(count - len(alternates[index]))
        ]
        generations = generate_all(
            generator, [prompt for _, prompt in sampled], decoding, store=store, progress=f"alternates, {attempt + 1}"
        )
        for (index, _), generation in zip(sampled, generations, strict=True):
            if is_alternate(rows[index], generation):
                alternates[index][generation.answer] = None
    return tuple(
        replace(row, alternate=text) for row, texts in zip(rows, alternates, strict=True) for text in texts or (None,)
    )


def _with_each_paraphrase(row: Example) -> list[Example]:
    """Return a row as written, and with each paraphrase in place of its question."""
    turns = row.messages[:-1]
    return [
        row,
        *(replace(row, messages=(*turns, Message("user", text)), paraphrases=()) for text in row.paraphrases),
    ]


def is_alternate(row: Example, generation: Generation) -> bool:
    """Whether a sampled answer has text, ends by itself, and says no key token that the question does not say."""
    ends = generation.tokens < LONGEST
    return is_text(generation.answer) and ends and not states_any(generation.answer, [row])
