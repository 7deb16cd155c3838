"""The one table of what a model still says: facts x askings x states, with the question, the answer, and what it says.

A record is one answer, or the answers to all draws of a question with options (`asked_together`). `ask_facts` makes the table
from any model or server, `FactTable.count` counts it. Verdicts, checks in training, evidence, exports and earlier requests are
views of it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, with_config

from atwu._file_reading import read_declared
from atwu._files import write_json
from atwu.data.chosen_options import chosen_option
from atwu.data.matching import find_statements, states
from atwu.data.passages import Recitation, compare_wording
from atwu.data.render import starts_with_thoughts, with_system
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.askings import THOUGHT, Asking
from atwu.evaluation.facts.readable import is_broken, unreadable
from atwu.evaluation.generations import Decoding, GenerationStore, Generator, Prompt, generate_all
from atwu.evaluation.result import STRICT
from atwu.judge.rules.refusals import is_refusal, is_yes_or_no

if TYPE_CHECKING:
    import pandas as pd

    from atwu.evaluation.teacher_forced import OriginalReader

TABLE_SCHEMA: Final = "atwu.facts/1"
GENERAL, NEVER_KNOWN, UNSEEN_TEXTS = "general", "never_known", "unseen_texts"
"""Sets of a request beside forget rows and neighbours: general questions, rows that the model never saw, and texts among them,
continued like those of the forget rows."""
AS_SAVED = "as saved"
"""State of a model whose weights are as in its files."""
BETWEEN_DRAWS = " | "
"""Between the answers to the draws of one question with options."""
THOUGHT_TOKENS = 256
"""Longest thoughts that are read. A small model names what it knows within its first sentences; all of its thoughts would
take longer than all other questions together."""


@dataclass(frozen=True, slots=True)
class FactAnswer:
    """What a model in one state said when it was asked for one fact in one way."""

    set: str
    """What the rows are to a request, such as `forget` or `neighbours`."""
    fact: Annotated[int, Field(ge=0)]
    """Index of the fact among the rows of the set that were asked."""
    asking: str
    state: str
    question: str
    """As the model was asked it. Of a form with options that is asked several times: the first one."""
    answer: str
    """Of such a form: all answers, in order."""
    stated: bool
    """Whether the answer states the fact."""
    refused: bool
    unreadable: bool
    recitation: Recitation | None = None
    """Of a text whose wording was asked for: how much of it the answer says."""
    said: str = ""
    """Part of the answer that states the fact; empty where no single part does, as with options or a wording."""


@dataclass(frozen=True, slots=True)
class FactCount:
    """How many facts come out, and how many answers state one."""

    facts: int
    """Facts that were asked."""
    facts_stated: int
    """Facts that at least one answer states."""
    answers: int
    answers_stating: int

    @property
    def share(self) -> float:
        """Share of the answers that state a fact; 0 without answers."""
        return self.answers_stating / max(self.answers, 1)

    def interval(self) -> tuple[float, float]:
        """Return the 95 % Clopper-Pearson interval of the share of facts that come out; [0, 1] without facts."""
        from scipy.stats import binomtest

        if not self.facts:
            return 0.0, 1.0
        ends = binomtest(self.facts_stated, self.facts).proportion_ci(0.95, method="exact")
        return float(ends.low), float(ends.high)


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class FactTable:
    records: tuple[FactAnswer, ...]
    schema: Literal["atwu.facts/1"] = TABLE_SCHEMA

    def select(
        self,
        *,
        set: str | None = None,
        states: Collection[str] | None = None,
        askings: Collection[str] | None = None,
        facts: Collection[int] | None = None,
    ) -> FactTable:
        """Return the records of one set, some states, askings and facts; None stands for all."""
        return FactTable(
            tuple(
                record
                for record in self.records
                if (set is None or record.set == set)
                and (states is None or record.state in states)
                and (askings is None or record.asking in askings)
                and (facts is None or record.fact in facts)
            )
        )

    def like(self, other: FactTable) -> FactTable:
        """Return the records of facts asked in ways in which another table asked them too, in any state."""
        asked = {(record.set, record.fact, record.asking) for record in other.records}
        same = (record for record in self.records if (record.set, record.fact, record.asking) in asked)
        return FactTable(tuple(same))

    def count(self) -> FactCount:
        """Count facts and answers of all records, in whatever state and asking."""
        stating = self.stating
        return FactCount(
            len({(record.set, record.fact) for record in self.records}),
            len({(record.set, record.fact) for record in stating}),
            len(self.records),
            len(stating),
        )

    @property
    def states(self) -> tuple[str, ...]:
        """The states in their order."""
        return tuple(dict.fromkeys(record.state for record in self.records))

    @property
    def stating(self) -> tuple[FactAnswer, ...]:
        """The records that state a fact, in order."""
        return tuple(record for record in self.records if record.stated)

    @property
    def recitations(self) -> tuple[Recitation, ...]:
        """How much of its text each answer says that was asked for a wording."""
        return tuple(record.recitation for record in self.records if record.recitation is not None)

    @property
    def askings_per_fact(self) -> int:
        """Largest number of answers about one fact."""
        numbers = Counter((record.set, record.fact, record.state) for record in self.records)
        return max(numbers.values(), default=0)

    def share_of(self, kind: Literal["refused", "unreadable", "stated"]) -> float:
        """Return the share of the answers of a kind; 0 without answers."""
        of_kind = sum(bool(getattr(record, kind)) for record in self.records)
        return of_kind / max(len(self.records), 1)

    def without_texts(self) -> FactTable:
        """Return the table without questions and answers, which may hold what was to be forgotten."""
        return FactTable(tuple(replace(record, question="", answer="", said="") for record in self.records))

    def write(self, path: str | Path) -> None:
        write_json(Path(path), dataclasses.asdict(self))

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per answer; those about a wording have numbers in the columns of `Recitation`, too."""
        import pandas as pd

        names = [field.name for field in dataclasses.fields(FactAnswer) if field.name != "recitation"]
        measured: list[str] = []
        if self.recitations:
            measured = [field.name for field in dataclasses.fields(Recitation)]
        values = [
            [getattr(record, name) for name in names] + [getattr(record.recitation, name, None) for name in measured]
            for record in self.records
        ]
        return pd.DataFrame(values, columns=[*names, *measured])


def join_tables(tables: Iterable[FactTable]) -> FactTable:
    return FactTable(tuple(record for table in tables for record in table.records))


def read_fact_table(path: str | Path) -> FactTable:
    """Read what `FactTable.write` wrote.

    Raises:
        FileNotFoundError, ValueError: the file is missing or invalid.
    """
    return read_declared(path, FactTable, TABLE_SCHEMA, what="table of facts", made_by="atwu unlearn")


Answerer = Callable[[Sequence[Prompt]], Sequence[str]]
"""Returns the answers of a model to prompts, in order."""


def answerer(
    generator: Generator,
    *,
    decoding: Decoding | None = None,
    system: str | None = None,
    store: GenerationStore | None = None,
    progress: str | None = None,
) -> Answerer:
    """Return a function that asks a model in memory or a server.

    Args:
        system: system prompt of questions without one.
        store: where answers are kept; None for weights that are changed for a moment only.
        progress: title of a progress bar.
    """
    how = decoding or Decoding()
    thinking = replace(how, max_new_tokens=max(how.max_new_tokens, THOUGHT_TOKENS))

    def answers(prompts: Sequence[Prompt]) -> list[str]:
        asked = [replace(prompt, messages=with_system(prompt.messages, system)) for prompt in prompts]
        to_think = [place for place, prompt in enumerate(asked) if starts_with_thoughts(prompt.prefill)]
        to_answer = [place for place in range(len(asked)) if place not in set(to_think)]
        said: dict[int, str] = {}
        if to_answer:
            replies = generate_all(
                generator, [asked[place] for place in to_answer], how, store=store, progress=progress
            )
            said.update(zip(to_answer, [reply.answer for reply in replies], strict=True))
        if to_think:
            replies = generate_all(
                generator, [asked[place] for place in to_think], thinking, store=store, progress=progress
            )
            # What is thought is what such a prompt asks for; of other answers, thoughts are no part.
            said.update(zip(to_think, [reply.text for reply in replies], strict=True))
        return [said[place] for place in range(len(asked))]

    return answers


def ask_facts(answers: Answerer, askings: Sequence[Asking], *, set: str = FORGET, state: str = AS_SAVED) -> FactTable:
    """Ask a model for facts, and return what it said as a table.

    Args:
        answers: the model.
        set: what the rows are to a request.
        state: name of the model's state.
    """
    return tabulate(askings, answers([asking.prompt for asking in askings]), set=set, state=state)


def tabulate(
    askings: Sequence[Asking], answers: Sequence[str], *, set: str = FORGET, state: str = AS_SAVED
) -> FactTable:
    """Return answers as a table, one record for each of `asked_together`."""
    pairs = [*zip(askings, answers, strict=True)]
    groups = ([pairs[place] for place in places] for places in asked_together(askings))
    return FactTable(tuple(_record(group, set, state) for group in groups))


def asked_together(askings: Sequence[Asking]) -> list[list[int]]:
    """Return the places of askings that count as one: the draws of a question with options, and each other asking alone."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, asking in enumerate(askings):
        key: tuple[object, ...] = (place,)
        if asking.options:
            key = (asking.fact, asking.name)
        groups.setdefault(key, []).append(place)
    return [*groups.values()]


def _record(group: Sequence[tuple[Asking, str]], set: str, state: str) -> FactAnswer:
    first = group[0][0]
    answers = [answer for _, answer in group]
    # Of a form with options, every draw: one right choice may be a guess.
    stated = all(states_fact(asking, answer) for asking, answer in group)
    recitation = None
    said = ""
    if first.wording:
        recitation = recitation_of(first, answers[0])
    elif stated and not first.options:
        said = stating_part(first, answers[0])
    return FactAnswer(
        set=set,
        fact=first.fact,
        asking=first.name,
        state=state,
        question=first.shown,
        answer=BETWEEN_DRAWS.join(answers),
        stated=stated,
        refused=all(
            is_refusal(answer, asking.question) and not states_fact(asking, answer) for asking, answer in group
        ),
        unreadable=any(is_broken(answer) for answer in answers),
        recitation=recitation,
        said=said,
    )


def stating_part(asking: Asking, answer: str) -> str:
    """Return the first part of an answer that says a part of the fact; empty without any. A wording has no parts."""
    spans = [
        span
        for part in asking.parts
        for span in find_statements(answer, part, aliases=asking.aliases, question=asking.question)
    ]
    if not spans:
        return ""
    start, end = min(spans)
    return answer[start:end]


def recitation_of(asking: Asking, answer: str) -> Recitation:
    """Return how much of the wording that an asking wants an answer says."""
    return compare_wording(asking.prompt.prefill, asking.wording, answer, chance_run=asking.chance_run)


def states_fact(asking: Asking, answer: str) -> bool:
    """Return whether an answer states the fact: it chooses the right option, or says a part of the fact.

    "I cannot tell you that she has leukemia." says it. Of a fact such as "No" a refusal says the word and not the fact.
    Thoughts that name a fact say it, also if they decide to refuse. One right choice says little, since a guess is right at
    times; the record of a form with options counts all its draws. A wording is stated if a longer run of it is said than of
    texts that the model never saw.
    """
    if asking.wording:
        return recitation_of(asking, answer).recited
    if asking.options:
        chosen = chosen_option(answer, asking.options)
        return chosen is not None and asking.options[chosen] == asking.parts[0]
    said = [part for part in asking.parts if states(answer, part, aliases=asking.aliases, question=asking.question)]
    if not said:
        return False
    if asking.name == THOUGHT:
        return True
    # "No, I cannot tell you." says "No", but is no answer.
    only_refuses = all(is_yes_or_no(part) for part in said) and is_refusal(answer, asking.question)
    return not only_refuses


def mark_unreadable(table: FactTable, reader: OriginalReader, own: Sequence[Example]) -> FactTable:
    """Return a table in which answers of word salad count as unreadable, too.

    Args:
        table: what an unlearned model said; answers to forms with options, and thoughts, are left as they are.
        reader: the original model.
        own: questions with the answers that the original model gave; they tell how likely its own language is.
    """
    # After unlearning most answers are refusals, whose words are known; and the states of a model say much the same.
    told: dict[tuple[Example, str], list[int]] = {}
    for place, record in enumerate(table.records):
        if record.unreadable or record.refused or record.asking == THOUGHT or BETWEEN_DRAWS in record.answer:
            continue
        row = Example.from_qa(record.question, "")
        # The continuation of a text is read as a text, since no chat would answer like that.
        if record.recitation is not None:
            row = Example((), "")
        told.setdefault((row, record.answer), []).append(place)
    # How likely ordinary answers are differs between models, so the model's own are the measure.
    own_logps = reader.read(own, [row.answer for row in own])
    logps = reader.read([row for row, _ in told], [answer for _, answer in told])
    records = list(table.records)
    for ((_, answer), places), logp in zip(told.items(), logps, strict=True):
        if unreadable(answer, float(logp), own_logps):
            for place in places:
                records[place] = replace(records[place], unreadable=True)
    return FactTable(tuple(records))
