"""Check during training whether greedy answers still state the facts, as written and in other forms."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from atwu.data.encode import EncodedRow, Encoder
from atwu.data.question_forms import OPTION_FORMS, FormRow
from atwu.data.render import with_system
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.generations import Decoding, GenerationStore, Prompt, generate_all
from atwu.evaluation.metrics.key_tokens import key_token_probability, key_token_recall
from atwu.evaluation.metrics.recall_by_form import form_prompt, form_recall, forms_to_ask
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.forward import position_limit
from atwu.request.verdict_metrics import FORM_LIMIT

TIMED_ROWS = 32
"""Number of questions that are answered to estimate the duration of a check; in small batches, each takes longer."""
CHECKED_TOGETHER = 64
"""Number of questions in other forms after which a check may end early."""
LIKELY = 0.2
"""Key-token probability above which a fact may show in an answer to a question of a form that is not asked."""


@dataclass(frozen=True, slots=True)
class Leak:
    """Facts that greedy answers still state although the other goals are reached."""

    excess: float
    """Above 0: the mean recall over other forms; if the rows as written leak, 1 more than their recall is above its goal."""
    text: str
    """The recall and its goal, for the progress line."""
    places: tuple[int, ...] = ()
    """Places of the answers that state facts, among the rows in other forms."""


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Asks a model in memory about the forget rows: as written and with other prompts, then in other forms."""

    sets: Mapping[str, Sequence[Example]]
    """The forget set, and the same rows with other prompts where there are any, by their names."""
    encoder: Encoder
    """Encodes rows as in training."""
    goal: float
    """Largest key-token recall of greedy answers at which the rows count as forgotten."""
    neighbours: Sequence[Example] = ()
    """Facts about related subjects, as wrong options."""
    store: GenerationStore | None = None
    """Where answers are kept, so that the verdict need not ask the weights of the last check again."""

    def find_leak(
        self, generator: TransformersGenerator, *, at_most: float = math.inf, first: Sequence[int] = ()
    ) -> Leak | None:
        """Ask for the rows as written and with other prompts, and in other forms if these do not leak.

        Args:
            at_most: excess above which its exact value does not matter; the check ends once it is certainly higher, and
                returns what it is at least.
            first: places of rows in other forms to ask first, because they are likely to leak.
        """
        asker = _Asker(generator, self)
        if (found := max(self._recall(asker, rows) for rows in self.sets.values())) > self.goal:
            # More than any excess of the forms, which are not asked.
            return Leak(
                1 + found - self.goal, f"key-token recall of greedy answers is {found:.3f} (goal {self.goal:.3f})"
            )
        written = forms_to_ask(self.sets[FORGET], self.neighbours)
        order = list(dict.fromkeys((*first, *range(len(written)))))
        # The smallest possible recall, until a row is asked.
        recalls = [form_recall(each, "") for each in written]
        for start in range(0, len(order), CHECKED_TOGETHER):
            asked = order[start : start + CHECKED_TOGETHER]
            answers = asker.answers([form_prompt(written[place]) for place in asked])
            for place, answer in zip(asked, answers, strict=True):
                recalls[place] = form_recall(written[place], answer)
            forms = _means_by_form(written, recalls)
            worst = max(forms, key=lambda form: forms[form])
            excess = sum(max(recall, 0.0) for recall in forms.values()) / len(forms)
            whole = start + len(asked) == len(order)
            if forms[worst] > FORM_LIMIT and (whole or excess > at_most):
                number = f"{forms[worst]:.3f}" if whole else f"at least {forms[worst]:.3f}"
                return Leak(
                    excess,
                    f"recall in the form {worst.replace('_', ' ')} is {number} (goal {FORM_LIMIT:.3f})",
                    tuple(place for place, recall in enumerate(recalls) if recall > 0),
                )
        return None

    def likely_facts(self, generator: TransformersGenerator) -> int:
        """Return how many of the forget rows, in all forms that list no options, have likely key tokens.

        A form that is too long for the model or for `max_length` is left out: training has shorter ones.
        """
        model = generator.model
        longest = min(self.encoder.max_length, position_limit(model) or self.encoder.max_length)
        rows, encoded = list[Example](), list[EncodedRow]()
        for each in forms_to_ask(self.sets[FORGET], self.neighbours):
            with contextlib.suppress(ValueError):  # the prompt alone is longer
                row = self.encoder.encode(each.row)
                if each.form not in OPTION_FORMS and len(row.input_ids) <= longest:
                    rows.append(each.row)
                    encoded.append(row)
        read = zip(rows, read_tokens(model, encoded, entropy=False), strict=True)
        return sum((key_token_probability(row, tokens) or 0.0) > LIKELY for row, tokens in read)

    def estimate_seconds(self, generator: TransformersGenerator) -> float:
        """Estimate the duration of a check from a few questions; half of the checks are assumed to ask other forms."""
        few, start = [row for rows in self.sets.values() for row in rows][:TIMED_ROWS], time.monotonic()
        self._recall(_Asker(generator, replace(self, store=None)), few)
        prompts = sum(map(len, self.sets.values())) + len(forms_to_ask(self.sets[FORGET], self.neighbours)) / 2
        return (time.monotonic() - start) / len(few) * prompts

    def _recall(self, asker: _Asker, rows: Sequence[Example]) -> float:
        """Return the mean key-token recall in greedy answers; 0 if no row is a question."""
        questions = [row for row in rows if row.messages]
        answers = asker.answers([Prompt(row.messages) for row in questions])
        shares = [key_token_recall(row, answer) for row, answer in zip(questions, answers, strict=True)]
        known = [share for share in shares if share is not None]
        return sum(known) / max(len(known), 1)

    def ask(self, generator: TransformersGenerator, prompts: Sequence[Prompt]) -> list[str]:
        """Return greedy answers."""
        asked = [replace(each, messages=with_system(each.messages, self.encoder.system)) for each in prompts]
        return [each.answer for each in generate_all(generator, asked, Decoding(), store=self.store)]


class _Asker:
    """Asks every question of a check once: some forms repeat the questions of the rows."""

    def __init__(self, generator: TransformersGenerator, check: AnswerCheck) -> None:
        self.generator, self.check = generator, check
        self.known: dict[Prompt, str] = {}

    def answers(self, prompts: Sequence[Prompt]) -> list[str]:
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self.known]
        self.known.update(zip(new, self.check.ask(self.generator, new), strict=True))
        return [self.known[prompt] for prompt in prompts]


def _means_by_form(written: Sequence[FormRow], recalls: Sequence[float]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for each, recall in zip(written, recalls, strict=True):
        found.setdefault(each.form, []).append(recall)
    return {form: sum(values) / len(values) for form, values in found.items()}
