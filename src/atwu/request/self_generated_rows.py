"""Rows that the model writes: its answers to the forms of a question, and alternates of an answer.

A row says a fact in one wording, and its forms in another one; what the model itself says is neither. Unlearned in the row's
words alone, it goes on to state the fact in its own; retained in the row's words alone, its own lead elsewhere. Alternates are
plausible false answers (AltPO) or vague ones (ReLearn).
"""

from __future__ import annotations

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
from atwu.request.retain_set import FACT_TOKENS, form_answers, lower_words, names, states_any

SAMPLED_FORMS = ("continuation", "statement", "tell_about")
SAMPLED_TEXTS = 3
"""Sampled continuations of each plain text in these forms, beside the greedy one: a fact may follow later in the text, phrased
differently."""
_SENTENCE_END = re.compile(r"[.!?][\"'”’)*]*(?=\s|$)|\n")


def self_generated_forget_rows(
    generator: TransformersGenerator, rows: Sequence[Example], *, forms: Sequence[str], system: str | None
) -> tuple[Choice, ...]:
    """Return the model's answers that state the facts of forget rows, as further forget rows.

    A text whose wording is its fact has no other wording.

    Args:
        forms: forms of the question that training uses; empty for the rows as written.
    """
    asked = forms or ("question",)
    rows = [row for row in rows if row.chance_run is None]
    written = [each for each in rows_in_forms(rows, asked) if each.can_be_asked]
    texts = [each for each in written if each.form in SAMPLED_FORMS]
    if "tell_about" in asked:
        written += requests_about_subjects(rows)
    answers = form_answers(generator, written, Decoding(), system=system)
    sampled = Decoding(temperature=1.0)
    answers += form_answers(
        generator, texts, sampled, system=system, draws=SAMPLED_TEXTS, progress="texts of the forget rows"
    )
    found = rows_that_state_the_fact([*written, *texts * SAMPLED_TEXTS], answers)
    if not found:
        return ()
    why = f"{len(found)} self-generated answers that phrase a fact differently"
    return (Choice("further_forget", load_rows(found).source, why),)


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
        of: number of rows at the end whose forms are asked.
        forget: forget rows; answers with their names or key tokens are left out.
        further: rows to return before the answers: general and related questions that are not in the retain set.
        forms: as above.
    """
    others = [form for form in forms if form != "question"]
    written = [each for each in rows_in_forms(rows, others) if each.index >= len(rows) - of] if others and of else []
    answers = form_answers(
        generator,
        written,
        Decoding(max_new_tokens=FACT_TOKENS),
        system=system,
        progress="forms of related questions",
    )
    subjects = names(forget)
    found = [
        _own_answer(each, answer)
        for each, answer in zip(written, answers, strict=True)
        if is_text(answer) and subjects.isdisjoint(lower_words(answer)) and not states_any(answer, forget)
    ]
    why = f"{len(found)} self-generated answers to other forms of related questions"
    if further:
        why = f"{why}, {len(further)} to general and related questions, which are refused otherwise"
    every = [*further, *found]
    return (Choice("further_retain", load_rows(every).source, why),) if every else ()


def _own_answer(written: FormRow, answer: str) -> Example:
    """Return a row with the model's own answer; what it says after the opening of a text is labelled."""
    if not written.opening:
        return written.row.with_answer(answer)
    text = f"{written.opening} {answer}"
    return written.row.with_answer(text, ((len(written.opening) + 1, len(text)),))


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
    for each, answer in zip(written, answers, strict=True):
        aliases = () if each.form in REVERSED_FORMS else each.row.aliases  # these name the key text
        question = each.row.question
        statements = [
            span for part in each.parts for span in find_statements(answer, part, aliases=aliases, question=question)
        ]
        if not statements:
            continue
        start = len(each.opening) + 1 if each.opening else 0
        text = f"{each.opening} {answer}" if each.opening else answer
        # One answer may state the facts of several rows ("Tell me about Egypt."); one without its label would be held in place.
        _, _, spans = rows.setdefault((each.row.messages, text), (each.row, text, []))
        spans += [(start + begin, start + end) for begin, end in statements]
    found: dict[Example, None] = {}
    for written_row, text, spans in rows.values():
        labels = merged_spans(spans)
        end = _SENTENCE_END.search(text, labels[-1][1])
        said = text[: end.end() if end else len(text)].rstrip()
        if said.strip() != written_row.answer.strip() and is_text(said):
            found.setdefault(replace(written_row.with_answer(said, labels), paraphrases=(), wrong_answers=()))
    return tuple(found)


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
    if (plain := next((index for index, row in enumerate(rows) if not row.messages), None)) is not None:
        raise ValueError(f"forget set, row {plain + 1}: a plain text row has no question; leave it out.")
    if kind == "vague":
        rows = [
            row
            if text == row.question
            else replace(row, messages=(*row.messages[:-1], Message("user", text)), paraphrases=())
            for row in rows
            for text in (row.question, *row.paraphrases)
        ]
    generator, store = TransformersGenerator(model, tokenizer), GenerationStore()
    decoding = Decoding(max_new_tokens=LONGEST, temperature=1.0, seed=seed, stop=("Question:",))
    asked = [
        (Message("user", f"Question: {row.question}\nAnswer: {row.answer}\n\n{ALTERNATE_INSTRUCTIONS[kind]}"),)
        for row in rows
    ]
    found: list[dict[str, None]] = [{} for _ in rows]
    for attempt in range(attempts):
        sampled = [
            (index, Prompt(messages, prefill="Alternate answer:", draw=attempt * count + number))
            for index, messages in enumerate(asked)
            for number in range(count - len(found[index]))
        ]
        made = generate_all(
            generator, [prompt for _, prompt in sampled], decoding, store=store, progress=f"alternates, {attempt + 1}"
        )
        for (index, _), each in zip(sampled, made, strict=True):
            if is_alternate(rows[index], each):
                found[index][each.answer] = None
    return tuple(
        replace(row, alternate=text) for row, texts in zip(rows, found, strict=True) for text in texts or (None,)
    )


def is_alternate(row: Example, made: Generation) -> bool:
    """Whether a sampled answer has text, ends by itself, and says no key token that the question does not say."""
    return is_text(made.answer) and made.tokens < LONGEST and not states_any(made.answer, [row])
