"""Check whether greedy answers of a model still state facts of the forget set."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atwu.data.question_forms import rows_in_forms
from atwu.data.render import with_system
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.generations import Decoding, Prompt, generate_all
from atwu.evaluation.metrics.key_tokens import key_token_recall
from atwu.evaluation.metrics.recall_by_form import MEASURED_FORMS, form_prompt, form_recall
from atwu.request.verdict_metrics import FORM_LIMIT

TIMED_ROWS = 8
"""Number of questions that are answered to estimate the duration of a check."""


@dataclass(frozen=True, slots=True)
class Leak:
    """Facts that greedy answers still state although the other goals are reached."""

    excess: float
    """Above 0: the mean recall over other forms; if the rows as written leak, 1 more than their recall is above its goal."""
    text: str
    """The recall and its goal, for the progress line."""


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Asks a model in memory about the forget rows: as written and with other prompts, then in other forms."""

    sets: Mapping[str, Sequence[Example]]
    """The forget set, and the same rows with other prompts where there are any, by their names."""
    tokenizer: Any
    system: str | None
    goal: float
    """Largest key-token recall of greedy answers at which the rows count as forgotten."""

    def find_leak(self, model: Any) -> Leak | None:
        """Ask for the rows as written and with other prompts, and in other forms if these do not leak."""
        if (found := max(self._recall(model, rows) for rows in self.sets.values())) > self.goal:
            # More than any excess of the forms, which are not asked.
            return Leak(
                1 + found - self.goal, f"key-token recall of greedy answers is {found:.3f} (goal {self.goal:.3f})"
            )
        forms = self._recall_by_form(model)
        worst = max(forms, key=lambda form: forms[form], default=None)
        if worst is None or forms[worst] <= FORM_LIMIT:
            return None
        text = f"recall in the form {worst.replace('_', ' ')} is {forms[worst]:.3f} (goal {FORM_LIMIT:.3f})"
        return Leak(sum(max(recall, 0.0) for recall in forms.values()) / len(forms), text)

    def estimate_seconds(self, model: Any) -> float:
        """Estimate the duration of a check from a few questions; half of the checks are assumed to ask other forms."""
        few, start = self.sets[FORGET][:TIMED_ROWS], time.monotonic()
        self._recall(model, few)
        prompts = sum(map(len, self.sets.values())) + len(rows_in_forms(self.sets[FORGET], MEASURED_FORMS)) / 2
        return (time.monotonic() - start) / len(few) * prompts

    def _recall(self, model: Any, rows: Sequence[Example]) -> float:
        """Return the mean key-token recall in greedy answers; 0 if no row is a question."""
        questions = [row for row in rows if row.messages]
        answers = self._answers(model, [Prompt(with_system(row.messages, self.system)) for row in questions])
        shares = [key_token_recall(row, answer) for row, answer in zip(questions, answers, strict=True)]
        known = [share for share in shares if share is not None]
        return sum(known) / max(len(known), 1)

    def _recall_by_form(self, model: Any) -> Mapping[str, float]:
        """Return the mean recall of each measured form."""
        written = rows_in_forms(self.sets[FORGET], MEASURED_FORMS)
        prompts = [form_prompt(each) for each in written]
        answers = self._answers(
            model, [Prompt(with_system(each.messages, self.system), prefill=each.prefill) for each in prompts]
        )
        recalls: dict[str, list[float]] = {}
        for each, answer in zip(written, answers, strict=True):
            recalls.setdefault(each.form, []).append(form_recall(each, answer))
        return {form: sum(values) / len(values) for form, values in recalls.items()}

    def _answers(self, model: Any, prompts: Sequence[Prompt]) -> list[str]:
        made = generate_all(TransformersGenerator(model, self.tokenizer), prompts, Decoding())
        return [each.answer for each in made]
