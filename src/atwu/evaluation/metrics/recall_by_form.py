"""Recall of a fact when it is asked for in other forms than its own question (`atwu.data.question_forms`).

A model that unlearned one form of a question may still answer another: a blank to fill in, a sentence to complete, a list
to choose from (SUITE, arXiv 2607.09236).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from atwu.data.chosen_options import chosen_option
from atwu.data.form_rows import rows_in_forms
from atwu.data.matching import stated_share
from atwu.data.question_forms import OPTION_DRAWS, OPTION_FORMS, FormRow
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET, AggregateColumn, Column
from atwu.evaluation.facts.askings import MEASURED_FORMS, form_prompt
from atwu.evaluation.facts.readable import is_broken
from atwu.evaluation.generations import Prompt
from atwu.evaluation.intervals import AggregateMetric, ModelComparison
from atwu.evaluation.metric import Metric

if TYPE_CHECKING:
    from atwu.evaluation.session import Session

NEIGHBOURS = "neighbours"
"""Name of the set of facts about related subjects."""
NEIGHBOUR_FORMS = ("question", "blank", "complete", "multiple_choice", "prefix", "quiz_host", "continuation")
"""Forms in which neighbour rows are asked: fewer, since only their mean is of interest."""


def forms_to_ask(forget: Sequence[Example], neighbours: Sequence[Example]) -> list[FormRow]:
    """Return forget rows in the measured forms that have a prompt; key texts of neighbour rows are wrong options, too."""
    written = rows_in_forms(forget, MEASURED_FORMS, related=neighbours, draws=OPTION_DRAWS)
    return [row for row in written if row.can_be_asked]


def answers_per_row(forms: Sequence[str]) -> int:
    """Largest number of answers that measure a row in these forms."""
    with_options = sum(form in OPTION_FORMS for form in forms)
    return OPTION_DRAWS * with_options + len(forms) - with_options


def form_recall(written: FormRow, answer: str) -> float:
    """Share of the wanted parts that an answer states (mean of `stated_share`).

    For a form that lists options it is corrected for guessing, (s - c) / (1 - c) with c the share of right guesses and s 1
    if the answer chooses the right option (`chosen_option`), 0 if it chooses another, several or none. The mean over rows is
    then 0 for a model that guesses, and may be below 0. Range [-1, 1].
    """
    if not written.options:
        row = written.row
        return mean(stated_share(answer, part, aliases=row.aliases, question=row.question) for part in written.parts)
    chance = 1 / len(written.options)
    chosen = chosen_option(answer, written.options)
    right = chosen is not None and written.options[chosen] == written.parts[0]
    return (float(right) - chance) / (1 - chance)


def worst_form(*means: Any) -> Any:
    """Largest mean recall over forms, at least 0."""
    return np.maximum.reduce([np.zeros_like(means[0]), *means])


class QuestionForms(Metric):
    name = "forms"
    about = "Recall of facts asked for in other forms: blanks, completions, multiple choice, role play and more"
    cost = f"{answers_per_row(MEASURED_FORMS)} answers per forget row, {answers_per_row(NEIGHBOUR_FORMS)} per neighbour row"
    needs = (FORGET,)
    needs_weights = False
    uses = ("max_new_tokens",)
    columns = (
        *(
            Column(
                f"form_{form}",
                form_recall,
                f"recall, {form.replace('_', ' ')}",
                f"share of the key text in the answer to the form {form.replace('_', ' ')}"
                + (", corrected for guessing" if form in OPTION_FORMS else ""),
                sets=(FORGET, NEIGHBOURS),
                range=(-1.0 if form in OPTION_FORMS else 0.0, 1.0),
            )
            for form in MEASURED_FORMS
        ),
        Column(
            "form_mean",
            form_recall,
            "recall, mean of forms",
            "mean recall of a fact over the forms of its question",
            sets=(FORGET, NEIGHBOURS),
            range=(-1.0, 1.0),
        ),
        Column(
            "form_gibberish",
            is_broken,
            "gibberish, all forms",
            "share of the answers to all forms that are empty, broken or loop",
            sets=(FORGET, NEIGHBOURS),
            direction="down",
        ),
        AggregateColumn(
            "worst_form",
            worst_form,
            "recall, worst form",
            "largest mean recall of the forget set over the forms of the question",
            direction="down",
        ),
    )

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        neighbours = session.sets.get(NEIGHBOURS, ())
        self._written = {
            FORGET: forms_to_ask(session.sets[FORGET], neighbours),
            NEIGHBOURS: [
                row for row in rows_in_forms(neighbours, NEIGHBOUR_FORMS, draws=OPTION_DRAWS) if row.can_be_asked
            ],
        }

    def prompts(self) -> Iterable[Prompt]:
        return [form_prompt(form) for forms in self._written.values() for form in forms]

    def record(self) -> None:
        for split, written in self._written.items():
            recalls: list[dict[str, list[float]]] = [{} for _ in self.session.sets.get(split, ())]
            unreadable: list[list[float]] = [[] for _ in recalls]
            for form_row in written:
                answer = self.session.answer(form_prompt(form_row))
                if answer is None:
                    continue
                recalls[form_row.index].setdefault(form_row.form, []).append(form_recall(form_row, answer))
                unreadable[form_row.index].append(float(is_broken(answer)))
            # A form with options is asked several times; a row has one value per form.
            means = [{form: mean(values) for form, values in row.items()} for row in recalls]
            for form in MEASURED_FORMS:
                if any(form in row for row in means):
                    self.record_column(split, f"form_{form}", [row.get(form) for row in means])
            if written:
                self.record_column(split, "form_mean", [mean(row.values()) if row else None for row in means])
                self.record_column(split, "form_gibberish", [mean(row) if row else None for row in unreadable])

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        used = [(FORGET, f"form_{form}") for form in MEASURED_FORMS if sides.this.has(FORGET, f"form_{form}")]
        worst = sides.this.apply_formula(worst_form, used)
        if worst is not None:
            yield "worst_form", worst
