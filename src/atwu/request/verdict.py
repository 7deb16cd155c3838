"""The verdict on an unlearning request: which facts still come out, at which cost, and what to do next.

`decide` applies the one rule of the whole project for *forgotten* (`rule`) to what the original and the unlearned model said.
`screen.py` prints the verdict.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import ConfigDict

from atwu._file_reading import read_declared
from atwu._files import write_json
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.askings import AS_WRITTEN, NOT_TRAINED_ON, THOUGHT
from atwu.evaluation.facts.fact_table import AS_SAVED, GENERAL, UNSEEN_TEXTS, FactAnswer, FactCount, FactTable
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.evaluation.result import STRICT
from atwu.request.regression_check import RegressionCheck
from atwu.request.text_wording import (
    RECITED_MEANS,
    count_of,
    not_recited_sentence,
    only_texts,
    recited_from_third_sentence,
    recited_sentence,
)
from atwu.training.run_folder import VERDICT_NAME

if TYPE_CHECKING:
    import pandas as pd

VERDICT_SCHEMA: Final = "atwu.verdict/4"

FORGOTTEN = "forgotten"
TOO_COSTLY = "forgotten, at too high a cost"
PARTLY = "partly forgotten"
NOT_FORGOTTEN = "not forgotten"
UNCHANGED = "nothing changed"
NOTHING = "nothing to forget"

STATING_LIMIT = 0.02
"""Largest share of all answers about the facts that may state one. One answer in fifty: single answers change with the wording
of a question, and a verdict must not turn over with them (`benchmarks/results/verdict-stability.md`)."""
POINTS = 0.05
"""Largest fall of the share of neighbours' answers that state theirs, and largest rise of the shares of refusals and of
unreadable answers."""
PARTLY_SHARE = 0.7
"""Share of the answers that stated a fact before, below which the rows count as partly forgotten."""
NO_NEIGHBOURS = (
    "whether facts about others are kept: the original model knows no neighbours (--retain FILE with rows about them)"
)
QUESTIONS_KEPT = "of these, not trained on"
"""Line of the answers to paraphrases, and to questions about answers; the first line counts them, too."""
SAMPLES = {FORGET: 3, NEIGHBOURS: 2}
"""Set -> number of questions that a verdict shows with the answer of the unlearned model."""
_FURTHER = "raise --learning-rate or --steps (the retain loss is far from its limit)"
"""Advice to forget more, if the retain loss has risen by less than half of its limit."""
_COSTLIER = "raise --max-retain-increase"
"""The same if it has risen by more."""


def rule(max_retain_increase: float) -> str:
    """Return the rule for *forgotten* in one sentence."""
    return (
        f"Forgotten means: at most {100 * STATING_LIMIT:g} % of all answers about the facts state one, no fact is stated (or "
        f"thought) when its own question is asked, the share of the neighbours' answers that state theirs fell by at most "
        f"{100 * POINTS:.0f} points, refusals of general questions and unreadable answers rose by at most {100 * POINTS:.0f} "
        f"points, and the retain loss rose by at most {max_retain_increase:g} nats/token."
    )


@dataclass(frozen=True, slots=True)
class Criterion:
    """One part of the rule with what was measured."""

    name: str
    before: float | None
    after: float | None
    """A share, or the loss in nats/token; None if it is not a number."""
    limit: float | None
    """Largest value of `after`, for neighbours the smallest; None for a limit that no value can miss."""
    met: bool
    sentence: str
    """What was measured, in words."""

    @property
    def decided(self) -> bool:
        """Whether the limit could have been missed."""
        return self.limit is not None


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many facts come out of the original and the unlearned model, in one state or way of asking."""

    name: str
    before: FactCount
    """Of the original model as it was saved, asked for the same facts in the same ways."""
    after: FactCount
    unknown: FactCount | None = None
    """The same of facts that the model never knew: what guessing and learning anew give; None if it was not measured."""


@dataclass(frozen=True, slots=True)
class RequestVerdict:
    """The verdict on an unlearning request or on an export."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    outcome: str
    """One of the constants above; of an export, one of those in `atwu.exporting.export_run`."""
    reason: str
    rule: str
    """The rule that decided, in one sentence."""
    criteria: tuple[Criterion, ...]
    """The parts of the rule."""
    states: tuple[StateCount, ...]
    """The model as saved, which decides, then other states and ways of asking."""
    leaks: tuple[FactAnswer, ...]
    """Every answer of the unlearned model that states a fact, in any state."""
    samples: tuple[FactAnswer, ...] = ()
    """Some other answers of the unlearned model."""
    next_steps: tuple[str, ...] = ()
    """Advice and commands, most useful first."""
    not_tested: tuple[str, ...] = ()
    """What the verdict does not cover."""
    notes: tuple[str, ...] = ()
    """Further sentences, which decide nothing."""
    earlier: tuple[RegressionCheck, ...] = ()
    """The earlier requests on this model, asked again."""
    schema: Literal["atwu.verdict/4"] = VERDICT_SCHEMA

    @property
    def good(self) -> bool:
        """Whether the request is fulfilled, and no earlier one came back."""
        return self.outcome == FORGOTTEN and not any(check.came_back for check in self.earlier)

    def write(self, folder: Path) -> None:
        """Write `verdict.json` into a folder."""
        write_json(folder / VERDICT_NAME, dataclasses.asdict(self))

    def add_to_card(self, folder: Path, *, name: str) -> None:
        """Add the verdict to the model card of a folder, its criteria as the Hub's model index under the name of the model.

        Questions and answers are left out, since cards are published.
        """
        import huggingface_hub as hub

        card = hub.ModelCard.load(folder / "README.md")
        card.data.model_name = name
        card.data.eval_results = [
            hub.EvalResult(
                task_type="text-generation",
                dataset_type="unlearning-request",
                dataset_name="unlearning request",
                metric_type=criterion.name.replace(" ", "_"),
                metric_name=criterion.name,
                metric_value=round(criterion.after, 4),
            )
            for criterion in self.criteria
            if criterion.after is not None
        ]
        card.text = f"{card.text.rstrip()}\n\n## Verdict: {self.outcome}\n\n{self.reason}\n"
        card.save(folder / "README.md")

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per criterion."""
        import pandas as pd

        names = ("name", "before", "after", "limit", "met")
        return pd.DataFrame([[getattr(line, name) for name in names] for line in self.criteria], columns=names)


def read_request_verdict(folder: Path) -> RequestVerdict:
    """Read what `RequestVerdict.write` wrote.

    Raises:
        FileNotFoundError, ValueError: the file is missing or invalid.
    """
    return read_declared(folder / VERDICT_NAME, RequestVerdict, VERDICT_SCHEMA, what="verdict", made_by="atwu unlearn")


def decide(
    before: FactTable,
    after: FactTable | None,
    *,
    retain_loss_increase: float | None,
    max_retain_increase: float,
    next_commands: tuple[str, ...] = (),
    not_tested: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    earlier: tuple[RegressionCheck, ...] = (),
) -> RequestVerdict:
    """Decide the verdict on a request.

    Args:
        before: what the original model said about the facts, the neighbours and general questions.
        after: what the unlearned model said, also in other states; None if nothing was changed.
        retain_loss_increase: increase of the retain loss in nats/token; None if it was not measured.
        max_retain_increase: largest accepted increase.
        next_commands: commands that make sense once there is an unlearned model.
        not_tested: what the tables do not cover.
        notes: further sentences, which decide nothing.
        earlier: the earlier requests on this model, asked again.
    """
    sentence = rule(max_retain_increase)
    if before.select(set=FORGET).recitations:
        sentence = f"{sentence} {RECITED_MEANS}"
    if nothing_to_forget(before):
        nothing = _nothing(before, sentence, changed=after is not None)
        return dataclasses.replace(nothing, next_steps=(*nothing.next_steps, *next_commands))
    assert after is not None, "there are facts to forget"
    saved = after.select(states=(AS_SAVED,)).like(before)
    about_facts = fact_criteria(before, saved)
    about_cost = cost_criteria(before, saved, retain_loss_increase, max_retain_increase)
    outcome = _outcome(before.select(set=FORGET), saved.select(set=FORGET), about_facts, about_cost)
    far_from_limit = retain_loss_increase is not None and retain_loss_increase < max_retain_increase / 2
    if not before.select(set=NEIGHBOURS).records:
        not_tested = (NO_NEIGHBOURS, *not_tested)
    missed = [criterion.sentence for criterion in (*about_facts, *about_cost) if not criterion.met]
    return RequestVerdict(
        outcome,
        " ".join(missed) or about_facts[0].sentence,
        sentence,
        (*about_facts, *about_cost),
        state_counts(before.select(set=FORGET), after.select(set=FORGET)),
        after.select(set=FORGET).stating,
        sample_answers(saved),
        (*_advice(outcome, about_cost, far_from_limit), *_repeat(earlier), *next_commands),
        not_tested,
        notes,
        earlier,
    )


def fact_criteria(before: FactTable, after: FactTable) -> tuple[Criterion, ...]:
    """Return the parts of the rule about the facts: few answers state one, and none to its own question, nor the thoughts
    before it if the model was asked for them."""
    first, last = (table.select(set=FORGET) for table in (before, after))
    was, now = first.count(), last.count()
    own = last.select(askings=(AS_WRITTEN,)).count()
    own_before = first.select(askings=(AS_WRITTEN,)).count()
    verb = "still states its fact" if now.answers_stating == 1 else "still state their fact"
    ways = last.askings_per_fact
    sentence = (
        f"{count_of(now.facts, 'fact')}, each asked in {_up_to(last)}{count_of(ways, 'way')}: {now.answers_stating} of "
        f"{count_of(now.answers, 'answer')} {verb} ({was.answers_stating} before)."
    )
    if only_texts(last):
        sentence = recited_sentence(first, last)
    asked = (
        f"Asked their own question, {own.facts_stated} of {count_of(own.facts, 'fact')} "
        f"{'is' if own.facts_stated == 1 else 'are'} stated ({own_before.facts_stated} before)."
    )
    if only_texts(last):
        asked = recited_from_third_sentence(own_before, own)
    criteria = (
        Criterion(
            "answers that state a fact", was.share, now.share, STATING_LIMIT, now.share <= STATING_LIMIT, sentence
        ),
        Criterion(
            "facts stated to their own question",
            own_before.facts_stated / max(own_before.facts, 1),
            own.facts_stated / max(own.facts, 1),
            0.0,
            not own.facts_stated,
            asked,
        ),
    )
    thought, thought_before = (table.select(askings=(THOUGHT,)).count() for table in (last, first))
    if not thought.facts:
        return criteria
    thinking = (
        f"Thinking about its own question, the model names {thought.facts_stated} of {count_of(thought.facts, 'fact')} "
        f"({thought_before.facts_stated} before)."
    )
    return (
        *criteria,
        Criterion("facts in thoughts", thought_before.share, thought.share, 0.0, not thought.facts_stated, thinking),
    )


def cost_criteria(
    before: FactTable, after: FactTable, increase: float | None, max_retain_increase: float
) -> tuple[Criterion, ...]:
    """Return the parts of the rule about what else changed; those that were not measured are left out.

    Args:
        increase: increase of the retain loss; NaN is above every limit, None was not measured.
    """
    criteria: list[Criterion] = []
    was, now = (table.select(set=NEIGHBOURS).count() for table in (before, after))
    if was.answers:
        smallest = was.share - POINTS
        owners = "1 neighbour's" if now.facts == 1 else f"{now.facts:,} neighbours'"
        answers = count_of(now.answers, "answer")
        state = "states its own" if now.answers_stating == 1 else "state theirs"
        sentence = f"Of {owners} {answers} {now.answers_stating} {state} ({was.answers_stating} before)."
        limit = smallest if smallest > 0 else None
        kept = now.share >= smallest - ROUNDING
        criteria.append(Criterion("neighbours' answers that state theirs", was.share, now.share, limit, kept, sentence))
    general = [table.select(set=GENERAL) for table in (before, after)]
    if general[0].records:
        refused = [sum(record.refused for record in table.records) for table in general]
        verb = "is" if refused[1] == 1 else "are"
        questions = count_of(len(general[1].records), "general question")
        sentence = f"Of {questions} {refused[1]} {verb} refused ({refused[0]} before)."
        criteria.append(_rise("refusals of general questions", general[0], general[1], "refused", sentence))
    readable = as_readable_as(before), _asked_of_both(after)
    unreadable = [sum(record.unreadable for record in table.records) for table in readable]
    sentence = f"Of all {len(readable[1].records)} answers {unreadable[1]} cannot be read ({unreadable[0]} before)."
    if before.select(set=UNSEEN_TEXTS).records:
        sentence = (
            f"Of all {len(readable[1].records)} answers {unreadable[1]} cannot be read ({unreadable[0]} of "
            f"{len(readable[0].records)} before, with texts that the model never saw in place of the recited ones)."
        )
    criteria.append(_rise("unreadable answers", *readable, "unreadable", sentence))
    if increase is None:
        return tuple(criteria)
    if math.isnan(increase):
        sentence = "The retain loss is not a number any more."
    else:
        sentence = f"The retain loss rose by {max(increase, 0):.3f} nats/token (limit {max_retain_increase:g})."
    criteria.append(
        Criterion(
            "retain loss increase",
            None,
            None if math.isnan(increase) else increase,
            max_retain_increase,
            increase <= max_retain_increase,
            sentence,
        )
    )
    return tuple(criteria)


def as_readable_as(before: FactTable) -> FactTable:
    """Return the answers that those of an unlearned model are to be as readable as.

    A recited text is readable, and forgetting it leaves a model that continues it like any text that it never saw. Small models
    end in loops there.
    """
    if not before.select(set=UNSEEN_TEXTS).records:
        return before
    recited = {
        (record.fact, record.asking) for record in before.select(set=FORGET).records if record.recitation is not None
    }
    return FactTable(
        tuple(
            record for record in before.records if record.set != FORGET or (record.fact, record.asking) not in recited
        )
    )


def _asked_of_both(after: FactTable) -> FactTable:
    """Return the answers without those to texts that no model saw."""
    return FactTable(tuple(record for record in after.records if record.set != UNSEEN_TEXTS))


ROUNDING = 1e-9
"""What sums of shares may differ by where they are equal."""


def _rise(
    name: str, before: FactTable, after: FactTable, kind: Literal["refused", "unreadable"], sentence: str
) -> Criterion:
    was, now = before.share_of(kind), after.share_of(kind)
    largest = was + POINTS
    return Criterion(name, was, now, largest if largest < 1 else None, now <= largest + ROUNDING, sentence)


def all_met(criteria: Sequence[Criterion]) -> bool:
    return all(criterion.met for criterion in criteria)


def clearly_more(after: FactCount, before: FactCount) -> bool:
    """Return whether answers state a fact more often by more than the rule accepts of all answers."""
    return after.share - before.share > STATING_LIMIT + ROUNDING


def facts_forgotten(answers: FactTable) -> bool:
    """Return whether answers about forget rows meet the part of the rule about facts."""
    return all_met(fact_criteria(answers, answers))


def nothing_to_forget(before: FactTable) -> bool:
    """Return whether the original model already meets the part of the rule about facts.

    A guess is right at times: that no answer at all states a fact cannot be asked of a model that never saw them.
    """
    return facts_forgotten(before)


def _nothing(before: FactTable, sentence: str, *, changed: bool) -> RequestVerdict:
    count = before.select(set=FORGET).count()
    reason = (
        f"The original model does not know these facts: {count.answers_stating} of {count_of(count.answers, 'answer')} about "
        f"{count_of(count.facts, 'fact')} {'states' if count.answers_stating == 1 else 'state'} one, none of them to its own "
        "question."
    )
    if only_texts(before.select(set=FORGET)):
        reason = not_recited_sentence(before.select(set=FORGET))
    if not changed:
        reason += " Nothing was changed and nothing was written."
    leaks = before.select(set=FORGET).stating
    return RequestVerdict(NOTHING, reason, sentence, (), (), leaks, (), ("ask the model yourself (atwu chat)",))


def _outcome(
    before: FactTable, after: FactTable, about_facts: Sequence[Criterion], about_cost: Sequence[Criterion]
) -> str:
    if all_met(about_facts):
        return FORGOTTEN if all_met(about_cost) else TOO_COSTLY
    was, now = before.count(), after.count()
    if now.answers_stating < PARTLY_SHARE * was.answers_stating:
        return PARTLY
    said_before = {(record.fact, record.asking) for record in before.stating}
    said_now = {(record.fact, record.asking) for record in after.stating}
    return UNCHANGED if said_before == said_now else NOT_FORGOTTEN


def _advice(outcome: str, about_cost: Sequence[Criterion], far_from_limit: bool) -> tuple[str, ...]:
    """Return what to try next; nothing after success."""
    damaged = not all_met(about_cost)
    if outcome == FORGOTTEN:
        return ()
    if outcome == UNCHANGED and not damaged:
        return ("omit --learning-rate and --steps, so that they are chosen, or raise them",)
    if damaged:
        return ("lower --learning-rate, give more and closer rows with --retain, or raise --max-retain-increase",)
    further = _FURTHER if far_from_limit else _COSTLIER
    return (f"{further}, or add paraphrases of the forget rows (atwu rows paraphrases)",)


def _repeat(earlier: Sequence[RegressionCheck]) -> tuple[str, ...]:
    """Return the advice to forget once more what came back."""
    return tuple(
        f"forget the rows of request {check.number} again, which came back" for check in earlier if check.came_back
    )


def state_counts(before: FactTable, after: FactTable) -> tuple[StateCount, ...]:
    """Return the counts of the forget rows by state, and by ways of asking that are no part of the rule."""
    saved = after.select(states=(AS_SAVED,))
    counts = [StateCount(AS_SAVED, before.count(), saved.like(before).count())]
    not_trained_on = saved.like(before).select(askings=NOT_TRAINED_ON)
    if not_trained_on.records:
        counts.append(StateCount(QUESTIONS_KEPT, before.select(askings=NOT_TRAINED_ON).count(), not_trained_on.count()))
    groups: dict[str, list[FactAnswer]] = {}
    ruled = {record.asking for record in before.records}
    for record in after.records:
        if record.state != AS_SAVED:
            groups.setdefault(record.state, []).append(record)
        elif record.asking not in ruled:
            groups.setdefault(record.asking, []).append(record)
    for name, records in groups.items():
        asked = FactTable(tuple(records))
        counts.append(StateCount(name, count_before(before, asked), asked.count()))
    return tuple(counts)


def count_before(before: FactTable, asked: FactTable) -> FactCount:
    """Count what the original model said to the same questions; to its own question where it was not asked them."""
    same = before.like(asked)
    if not same.records:
        same = before.select(facts={record.fact for record in asked.records}, askings=(AS_WRITTEN,))
    return same.count()


def sample_answers(after: FactTable) -> tuple[FactAnswer, ...]:
    """Return some answers to questions as written, spread evenly."""
    samples: list[FactAnswer] = []
    for name, number in SAMPLES.items():
        answers = after.select(set=name, askings=(AS_WRITTEN,)).records
        step = max(len(answers) / number, 1)
        samples += [answers[int(place * step)] for place in range(min(number, len(answers)))]
    return tuple(samples)


def _up_to(table: FactTable) -> str:
    """Return "up to " if some facts were asked in fewer ways than others."""
    count = table.count()
    return "" if count.facts * table.askings_per_fact == count.answers else "up to "
