"""The verdict on an export: does the exported model state facts that the model of the run does not?

The rule of verdicts (`atwu.request.verdict`) decides whether facts came back, and what else the export changed.
"""

from __future__ import annotations

from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.fact_table import FactTable
from atwu.request.verdict import (
    RequestVerdict,
    all_met,
    clearly_more,
    cost_criteria,
    fact_criteria,
    facts_forgotten,
    rule,
    sample_answers,
    state_counts,
)

SAME = "as before export"
WITHIN = "a little comes back"
BACK = "what was forgotten comes back"
EXPORT_DAMAGED = "damaged by the export"
GOOD = (SAME, WITHIN)
_ADVICE = {
    BACK: "export with more bits, or unlearn further (raise --max-retain-increase)",
    EXPORT_DAMAGED: "export with more bits (8bit, or gguf with Q8_0)",
}


def judge_export(
    before: FactTable,
    after: FactTable,
    *,
    retain_loss_increase: float,
    max_retain_increase: float,
    notes: tuple[str, ...] = (),
    next_commands: tuple[str, ...] = (),
    not_tested: tuple[str, ...] = (),
) -> RequestVerdict:
    """Decide the verdict on an export.

    Args:
        before: what the model of the run said.
        after: what the exported model said to the same questions.
        notes: further sentences, such as how much the export changed the weights.
    """
    about_facts = fact_criteria(before, after)
    about_cost = cost_criteria(before, after, retain_loss_increase, max_retain_increase)
    outcome = _outcome(before.select(set=FORGET), after.select(set=FORGET), damaged=not all_met(about_cost))
    missed = [criterion.sentence for criterion in about_cost if not criterion.met]
    advice = () if outcome in GOOD else (_ADVICE[outcome],)
    return RequestVerdict(
        outcome=outcome,
        reason=" ".join((about_facts[0].sentence, *missed)),
        rule=rule(max_retain_increase),
        criteria=(*about_facts, *about_cost),
        states=state_counts(before.select(set=FORGET), after.select(set=FORGET)),
        leaks=after.select(set=FORGET).stating,
        samples=sample_answers(after),
        next_steps=(*advice, *next_commands),
        not_tested=not_tested,
        notes=notes,
    )


def _outcome(before: FactTable, after: FactTable, *, damaged: bool) -> str:
    """Return the outcome: facts came back if the rule held and does not any more, or clearly more answers state one."""
    said, now = before.count(), after.count()
    if not facts_forgotten(after) and (facts_forgotten(before) or clearly_more(now, said)):
        return BACK
    if damaged:
        return EXPORT_DAMAGED
    return WITHIN if now.answers_stating > said.answers_stating else SAME
