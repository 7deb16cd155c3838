"""Ask an unlearned model in every state and way that may bring facts back, beside facts that no model ever knew.

A model that is fine-tuned learns: that a fact comes out after ten steps says something only beside how often a fact that it
never knew does, after the same steps on rows like it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.askings import (
    Asking,
    form_askings,
    own_askings,
    sampled_askings,
    second_turns,
    split_facts,
)
from atwu.evaluation.facts.fact_table import GENERAL, NEVER_KNOWN, FactTable, answerer, ask_facts, join_tables
from atwu.evaluation.facts.model_states import (
    DIRECTION,
    EIGHT_BITS,
    check_memory,
    fine_tuned,
    fine_tuned_name,
    mean_hidden_states,
    moved_along,
    quantized_weights,
)
from atwu.evaluation.generations import Decoding
from atwu.request.finished_request import FinishedRequest
from atwu.request.measurement import STATE_FORMS, RowEncoding, ask_in_cheap_states, ask_model
from atwu.training.progress import Say

SAMPLES_DRAWN = 8
"""Samples of an answer; more find facts that are less likely."""
TEMPERATURE = 1.0
STEPS = (5, 10, 20)
"""Numbers of fine-tuning steps."""
UNRELATED = "unrelated rows"
HALF = "half of them"


@dataclass(frozen=True, slots=True)
class StatesAsked:
    """What an unlearned model said in all states."""

    answers: FactTable
    """About the forget rows, with the neighbours and general questions as saved."""
    unknown: FactTable
    """About facts that no model ever knew, in the states in which they say something."""
    missing: tuple[str, ...]
    """What was not asked, and why."""


def ask_in_all_states(request: FinishedRequest, say: Say) -> StatesAsked:
    """Ask the unlearned model of a finished request in all states.

    Raises:
        MissingInputError: the forget rows are missing or changed.
    """
    model, tokenizer = request.model
    sets = request.sets
    missing: list[str] = []
    say("asking the unlearned model as saved, after examples and with rounded weights")
    generator = TransformersGenerator(model, tokenizer)
    tables = [
        ask_model(generator, sets, request.row_encoding, progress="as saved"),
        ask_in_cheap_states(model, tokenizer, sets, request.row_encoding),
    ]
    asker = _StateAsker(model, tokenizer, request.row_encoding)
    tables += [asker.second_turn(sets[FORGET]), asker.sampled(sets[FORGET])]
    unknown = [asker.in_state(sets[NEVER_KNOWN], "as saved"), asker.sampled(sets[NEVER_KNOWN])]
    if getattr(model, "is_quantized", False):
        missing.append("fine-tuning and 8 bits: the model has quantized weights")
    else:
        with quantized_weights(model, 8):
            tables.append(asker.in_state(sets[FORGET], EIGHT_BITS))
        try:
            check_memory(model)
        except ValueError as error:
            missing.append(f"fine-tuning: {error}")
        else:
            say("fine-tuning the unlearned model on half of the facts, and on unrelated rows")
            tables += asker.fine_tuned(sets[FORGET])
            unknown += asker.fine_tuned(sets[NEVER_KNOWN])
            tables += asker.fine_tuned_on(sets[GENERAL], sets[FORGET])
    try:
        tables.append(_pushed_back(request, asker, say))
    except (AtwuError, ValueError) as error:
        missing.append(f"{DIRECTION}: {error}")
    if not sets[NEVER_KNOWN]:
        missing.append("facts the model never knew: the holdout rows are not as in the request any more")
    return StatesAsked(join_tables(tables), join_tables(unknown), tuple(missing))


@dataclass(frozen=True, slots=True)
class _StateAsker:
    """Asks a model whose weights are changed for a moment, so that no answer is kept."""

    model: Any
    tokenizer: Any
    row_encoding: RowEncoding

    def answers(self, progress: str, decoding: Decoding | None = None) -> Callable[[Sequence[Any]], Sequence[str]]:
        generator = TransformersGenerator(self.model, self.tokenizer)
        return answerer(generator, decoding=decoding, system=self.row_encoding.system, progress=progress)

    def in_state(self, rows: Sequence[Example], state: str, facts: Sequence[int] | None = None) -> FactTable:
        """Ask for some facts, by default all, in the model's present state."""
        askings = form_askings(rows, forms=STATE_FORMS)
        return ask_facts(self.answers(state), _about(askings, facts), state=state)

    def sampled(self, rows: Sequence[Example]) -> FactTable:
        state = f"best of {SAMPLES_DRAWN} samples"
        how = self.answers(state, Decoding(temperature=TEMPERATURE))
        return ask_facts(how, sampled_askings(rows, SAMPLES_DRAWN), state=state)

    def second_turn(self, rows: Sequence[Example]) -> FactTable:
        first, answers = own_askings(rows), self.answers("in a second turn")
        doubts = second_turns(first, answers([asking.prompt for asking in first]))
        return ask_facts(answers, doubts)

    def fine_tuned(self, rows: Sequence[Example]) -> Iterator[FactTable]:
        """Yield what it says about the other half of some facts after steps on half of them."""
        shown, asked = split_facts(rows)
        if not asked:
            return
        encoded = self._encoded([rows[place] for place in shown])
        for steps in STEPS:
            with fine_tuned(self.model, encoded, steps):
                yield self.in_state(rows, fine_tuned_name(steps, HALF), asked)

    def fine_tuned_on(self, unrelated: Sequence[Example], rows: Sequence[Example]) -> Iterator[FactTable]:
        """Yield what it says about all facts after steps on rows that say nothing about them."""
        if not unrelated:
            return
        with fine_tuned(self.model, self._encoded(unrelated), STEPS[-1]):
            yield self.in_state(rows, fine_tuned_name(STEPS[-1], UNRELATED))

    def _encoded(self, rows: Sequence[Example]) -> Sequence[EncodedRow]:
        encoder = Encoder(self.tokenizer, max_length=self.row_encoding.max_length, system=self.row_encoding.system)
        return encoder.encode_rows(rows, what="fine-tuning rows").rows


def _about(askings: Sequence[Asking], facts: Sequence[int] | None) -> list[Asking]:
    return [asking for asking in askings if facts is None or asking.fact in facts]


def _pushed_back(request: FinishedRequest, asker: _StateAsker, say: Say) -> FactTable:
    """Ask the unlearned model with its hidden states moved to where those of the original model were."""
    rows = request.sets[FORGET]
    say("pushing the hidden states of the unlearned model back along one direction")
    original, tokenizer = request.open_original()
    encoder = Encoder(tokenizer, max_length=request.row_encoding.max_length, system=request.row_encoding.system)
    askings = own_askings(rows)
    target = mean_hidden_states(original, encoder, askings)
    del original
    gc.collect()
    direction = target - mean_hidden_states(asker.model, encoder, askings)
    state: AbstractContextManager[None] = moved_along(asker.model, direction)
    with state:
        return asker.in_state(rows, DIRECTION)


def unknown_counts(unknown: FactTable) -> Mapping[str, FactTable]:
    """Return the answers about facts that the model never knew by state."""
    return {state: unknown.select(states=(state,)) for state in unknown.states}
