"""Ask a model about the rows of a request, as saved and in other states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atwu.benchmarks.base import evenly_spaced
from atwu.data.general_rows import common_questions, general_questions
from atwu.data.render import opening_of_thoughts
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.facts.askings import (
    AS_WRITTEN,
    CHAINED,
    Asking,
    askings_after_examples,
    chained_askings,
    form_askings,
    paraphrased_askings,
    plain_askings,
    recitation_askings,
    split_facts,
    thought_askings,
)
from atwu.evaluation.facts.fact_table import (
    GENERAL,
    NEVER_KNOWN,
    UNSEEN_TEXTS,
    Answerer,
    FactTable,
    answerer,
    ask_facts,
    join_tables,
)
from atwu.evaluation.facts.model_states import rounded_states
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.metrics.recall_by_form import NEIGHBOUR_FORMS, NEIGHBOURS
from atwu.request.retain_set import self_generated_answers
from atwu.request.text_wording import unseen_wordings

MAX_ROWS = 40
"""Rows of a set that are measured, at most; evenly spaced."""
STATE_FORMS = ("question", "blank", "complete", "prefix", "continuation")
"""Forms in which a model is asked in other states than as saved: fewer, since each state takes as long again."""


@dataclass(frozen=True, slots=True)
class RowEncoding:
    """How rows are tokenized: as in training."""

    system: str | None
    """System prompt of the questions."""
    max_length: int
    """Longest row in tokens."""


def general_answers(
    generator: TransformersGenerator, forget: Sequence[Example], *, system: str | None
) -> tuple[Example, ...]:
    """Return general questions that name nothing of the forget rows, with the model's answers."""
    questions = (*general_questions("held"), *common_questions("held"))
    return self_generated_answers(generator, questions, forget=forget, system=system, progress="general questions")


def measured_sets(
    forget: Sequence[Example],
    retain: Sequence[Example],
    holdout: Sequence[Example],
    general: Sequence[Example],
    neighbours: Sequence[Example] = (),
    chained: Sequence[Example] = (),
) -> dict[str, Sequence[Example]]:
    """Return the sets on which two models are compared.

    Beside the holdout rows, which state facts, stand texts that no model saw where the forget rows have texts to recite; where
    they have nothing else, in place of them.
    """
    unseen = unseen_wordings(forget, holdout)
    if unseen and not any(row.messages for row in forget):
        holdout = unseen
    elif unseen:
        holdout = (*(row for row in holdout if row.messages), *unseen)
    return {
        FORGET: evenly_spaced(forget, MAX_ROWS),
        RETAIN: evenly_spaced(retain, MAX_ROWS),
        NEVER_KNOWN: evenly_spaced(holdout, MAX_ROWS),
        GENERAL: general,
        NEIGHBOURS: neighbours,
        CHAINED: evenly_spaced(chained, MAX_ROWS),
    }


def fact_askings(forget: Sequence[Example], *, thoughts: str | None = None) -> list[Asking]:
    """Return the ways in which the verdict asks for the facts of forget rows: all forms, the questions paraphrased, and thought
    about by a model that thinks.

    Chained questions are not among them: only the verdict asks these (`ask_sets`).

    Args:
        thoughts: what the model's thoughts begin with (`opening_of_thoughts`).
    """
    return [
        *form_askings(forget),
        *paraphrased_askings(forget),
        *thought_askings(forget, thoughts),
    ]


def ask_sets(answers: Answerer, sets: Mapping[str, Sequence[Example]], *, thoughts: str | None = None) -> FactTable:
    """Ask a model about the facts, the neighbours and general questions, as the rule of the verdict needs it.

    Args:
        thoughts: what the model's thoughts begin with, if it is to be asked for them.
    """
    neighbours = form_askings(sets.get(NEIGHBOURS, ()), forms=NEIGHBOUR_FORMS)
    return join_tables(
        (
            ask_facts(answers, fact_askings(sets[FORGET], thoughts=thoughts)),
            ask_facts(answers, chained_askings(sets[FORGET], sets.get(CHAINED, ()))),
            ask_facts(answers, neighbours, set=NEIGHBOURS),
            ask_facts(answers, plain_askings(sets.get(GENERAL, ())), set=GENERAL),
            ask_facts(answers, _unseen_askings(sets), set=UNSEEN_TEXTS),
        )
    )


def _unseen_askings(sets: Mapping[str, Sequence[Example]]) -> list[Asking]:
    """Return holdout texts to be continued, where forget rows are: how a text goes on that nobody knows by heart."""
    if not any(row.chance_run is not None for row in sets[FORGET]):
        return []
    return recitation_askings(sets.get(NEVER_KNOWN, ()), cuts=(AS_WRITTEN,))


def ask_model(
    generator: TransformersGenerator, sets: Mapping[str, Sequence[Example]], row_encoding: RowEncoding, *, progress: str
) -> FactTable:
    """Ask a model in memory, whose answers are kept for the next time."""
    how = answerer(generator, system=row_encoding.system, store=GenerationStore(), progress=progress)
    return ask_sets(how, sets, thoughts=opening_of_thoughts(generator.tokenizer))


def states_own_question(generator: TransformersGenerator, forget: Sequence[Example], row_encoding: RowEncoding) -> bool:
    """Return whether a model states a fact when it is asked as written, or goes on with the opening of a text."""
    askings = [asking for asking in fact_askings(forget) if asking.name == AS_WRITTEN]
    how = answerer(generator, system=row_encoding.system, store=GenerationStore(), progress="own questions")
    return bool(ask_facts(how, askings).stating)


def ask_in_cheap_states(
    model: Any, tokenizer: Any, sets: Mapping[str, Sequence[Example]], row_encoding: RowEncoding
) -> FactTable:
    """Ask an unlearned model after examples, and with its weights rounded: what takes no training."""
    rows = sets[FORGET]
    tables = [ask_after_examples(TransformersGenerator(model, tokenizer), rows, row_encoding)]
    askings = form_askings(rows, forms=STATE_FORMS)
    for name, state in rounded_states(model).items():
        with state:
            answers = answerer(TransformersGenerator(model, tokenizer), system=row_encoding.system, progress=name)
            tables.append(ask_facts(answers, askings, state=name))
    return join_tables(tables)


def ask_after_examples(
    generator: TransformersGenerator, rows: Sequence[Example], row_encoding: RowEncoding
) -> FactTable:
    """Ask for half of the facts after others with their answers; without any for which there are examples, empty."""
    askings = askings_after_examples(rows, *split_facts(rows))
    try:
        return ask_facts(answerer(generator, system=row_encoding.system, progress="after examples"), askings)
    except ValueError:  # the examples do not fit into the model
        return FactTable(())


def untested(rows: Sequence[Example], *, retain_given: bool) -> tuple[str, ...]:
    """Return what a verdict on these forget rows does not cover.

    Args:
        retain_given: there are rows of the user that must stay.
    """
    questions = [row for row in rows if row.messages]
    without = sum(not row.paraphrases for row in questions)
    items = []
    if not questions:
        items.append(
            "questions: the forget rows are plain texts, which were to be continued; ask about what they say yourself"
        )
    elif without:
        which = "the rows have none" if without == len(questions) else f"{without} of {len(questions)} rows have none"
        items.append(f"paraphrases: {which} (atwu rows paraphrases writes them)")
    if not retain_given:
        items.append("rows of your own that must stay: none were given (--retain FILE)")
    return (
        *items,
        "other languages, questions that do not name the subject",
        "samples, further training (atwu evidence)",
    )
