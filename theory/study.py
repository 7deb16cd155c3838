"""The whole study: enumerate, minimize, search, and compare the results with every claim of the theorem."""

from __future__ import annotations

import numpy as np
from tqdm import tqdm

from theory.claims import Claim
from theory.conflicts import separation
from theory.departure_study import departure
from theory.instances import overlapping_problem, separated_problem
from theory.minima import descend_all, memorized_model, retain_minimum
from theory.problem import measure
from theory.relaxed_study import relaxation
from theory.rows import BudgetRow, Curves, TheoryResult, TokenRow
from theory.saturation import Objective
from theory.supports import SupportTable, choose, enumerate_supports, exchange_margin, is_recovered, scores_of

TOLERANCE = 1e-6
_RANDOM_STARTS = 12


def study(*, objective: Objective | None = None, seed: int = 0) -> TheoryResult:
    """Run the study, about half a minute on one core.

    Args:
        objective: weights of the joint objective; with the default, tokens separate.
        seed: seed of random starts and scores.
    """
    objective = objective or Objective()
    separated = enumerate_supports(separated_problem(), objective)
    overlapping = enumerate_supports(overlapping_problem(), objective)
    relaxed, searches, phases, relaxed_claims = relaxation(separated, seed=seed)
    departed, needed, lines, departure_claims = departure(objective)
    return TheoryResult(
        objective=objective,
        seed=seed,
        oracle_budget=float(separated.problem.private.mean()),
        tokens=_tokens(separated),
        budgets=_budgets(separated),
        overlapping_tokens=_tokens(overlapping),
        overlapping_budgets=_budgets(overlapping),
        relaxed=(*relaxed, *departed),
        searches=searches,
        needed=needed,
        curves=Curves(_rises(separated), *phases, *lines),
        claims=(
            *_computed(separated, overlapping, seed),
            *_fixed_budget(separated),
            *_without_separation(overlapping),
            *relaxed_claims,
            *departure_claims,
        ),
    )


def _tokens(table: SupportTable) -> tuple[TokenRow, ...]:
    problem = table.problem
    memorized = np.exp(measure(problem, memorized_model(problem)).logps)
    retain_only = np.exp(retain_minimum(problem).logps)
    return tuple(
        TokenRow(
            token=name,
            private=bool(problem.private[t]),
            memorised=float(memorized[t]),
            retain_only=float(retain_only[t]),
            conflict=float(table.conflicts[1 << t]),
            penalised=float(table.penalised[1 << t]),
        )
        for t, name in enumerate(problem.tokens)
    )


def _budgets(table: SupportTable) -> tuple[BudgetRow, ...]:
    rows = []
    for k in range(1, table.problem.n + 1):
        choice = choose(table, k)
        rows.append(
            BudgetRow(
                k=k,
                tokens=tuple(name for t, name in enumerate(table.problem.tokens) if choice.support >> t & 1),
                private=choice.private,
                recovered=is_recovered(choice, table.problem),
                penalised=choice.penalised,
                lead=choice.lead if np.isfinite(choice.lead) else None,
                rise=choice.rise,
            )
        )
    return tuple(rows)


def _rises(table: SupportTable) -> tuple[tuple[float, float], ...]:
    rises = [table.rises[table.sizes == k] for k in range(1, table.problem.n + 1)]
    return tuple((float(values.min()), float(values.max())) for values in rises)


def _computed(separated: SupportTable, overlapping: SupportTable, seed: int) -> list[Claim]:
    tables = (separated, overlapping)
    conflict_gap = max(float(np.abs(table.conflict_gaps).max()) for table in tables)
    gap = max(float(table.gaps.max()) for table in tables)
    violation = max(float(table.violations.max()) for table in tables)
    supports = [1 << t for t in range(separated.problem.n)]
    supports += [separated.problem.oracle, (1 << separated.problem.n) - 1]
    below = -np.inf
    for support in tqdm(supports, "random starts", leave=False, disable=None):
        reached = descend_all(
            separated.problem,
            scores_of(support, separated.problem.n),
            separated.objective,
            count=_RANDOM_STARTS,
            seed=seed,
        )
        lower = separated.vertex_values[support] - separated.gaps[support]
        below = max(below, lower - min(reached))
    total = sum(len(table.gaps) for table in tables)
    return [
        Claim(
            "every conflict and every minimum over the model is a certified global minimum",
            True,
            bool(max(conflict_gap, gap, violation) <= TOLERANCE),
            f"{total} supports; largest gaps {conflict_gap:.0e} and {gap:.0e}, constraints within {violation:.0e}",
        ),
        Claim(
            "no random start of the undetached SatGA ends below its certificate",
            True,
            bool(below <= TOLERANCE),
            f"{len(supports)} supports, {_RANDOM_STARTS} starts each",
        ),
    ]


def _fixed_budget(table: SupportTable) -> list[Claim]:
    problem = table.problem
    found = separation(table.conflicts, table.penalised, problem.private, retain_weight=table.objective.retain_weight)
    margin = exchange_margin(table)
    choices = [choose(table, k) for k in range(1, problem.n + 1)]
    private = int(problem.private.sum())
    before = choices[private - 1].rise
    after = choices[private].rise
    return [
        Claim(
            "separation: any private token adds less conflict to any support than any shared token",
            True,
            found.holds,
            f"at most {found.largest_private:.4f} versus at least {found.smallest_shared:.4f}, slack {found.slack:.4f} "
            f"(bound {table.slack_bound:.4f})",
        ),
        Claim(
            "exchange: V(S + private) < V(S + shared) for every S and pair",
            True,
            margin > 0,
            f"smallest margin {margin:.4f}",
        ),
        Claim(
            f"up to rho* = {private}/{problem.n} the minimizer selects only private tokens, and at rho* all of them",
            True,
            all(is_recovered(choice, problem) and choice.lead > 0 for choice in choices[:private]),
            f"all {1 << problem.n} supports enumerated, each best support leads by at least "
            f"{min(choice.lead for choice in choices[:private]):.1e}",
        ),
        Claim(
            "beyond rho* it contains all private tokens and shared ones, and the retain loss jumps",
            True,
            all(is_recovered(choice, problem) and choice.lead > 0 for choice in choices[private:])
            and after > 2 * before,
            f"increase of L_r {before:.4f} at k = {private}, {after:.4f} at k = {private + 1}",
        ),
    ]


def _without_separation(table: SupportTable) -> list[Claim]:
    problem = table.problem
    found = separation(table.conflicts, table.penalised, problem.private, retain_weight=table.objective.retain_weight)
    private = int(problem.private.sum())
    choices = [choose(table, k) for k in range(1, private + 1)]
    wrong = [f"k = {choice.k}" for choice in choices if not is_recovered(choice, problem)]
    return [
        Claim(
            "separation still holds if a shared word is rare in the retain rows",
            False,
            found.holds or exchange_margin(table) > 0,
            f"a private token adds up to {found.largest_private:.4f}, a shared one as little as {found.smallest_shared:.4f}",
        ),
        Claim(
            "without separation the minimizer still selects only private tokens, up to rho*",
            False,
            not wrong,
            f"wrong support at {', '.join(wrong) or 'no budget'}",
        ),
    ]
