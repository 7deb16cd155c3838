"""What a session recorded, as a result: intervals, derived numbers, cost and warnings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from atwu._files import versions
from atwu.evaluation.derive import overall
from atwu.evaluation.numbers import Numbers, Sides, set_values
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.session import Session
from atwu.evaluation.warn import warnings
from atwu.judge.prompted import PromptedJudge


def session_result(
    session: Session,
    references: Mapping[str, EvalResult],
    *,
    model: str,
    fingerprint: str,
    settings: Mapping[str, Any],
) -> EvalResult:
    """The result of a session in which everything is recorded.

    Args:
        references: `original` and `retain-only`, as far as they are compared with.
        model: what the result calls the model.
    """
    values = {split: _row_values(session, split) for split in session.sets}
    original, retain_only = references.get("original"), references.get("retain-only")
    sides = Sides(
        Numbers(values), *(None if other is None else Numbers(other.rows) for other in (original, retain_only))
    )
    result = EvalResult(
        model=model,
        fingerprint=fingerprint,
        sets=set_values(sides.this, session.recorded) | session.extra,
        overall=overall(sides),
        rows=values,
        settings=settings,
        versions=versions(),
        references={role: other.fingerprint for role, other in references.items()},
        cost=_cost(session),
        curves=session.curves,
        warnings=tuple(dict.fromkeys(session.warnings)),
    )
    said = warnings(result, original, retain_only)
    return dataclasses.replace(result, warnings=(*result.warnings, *said))


def _row_values(session: Session, split: str) -> RowValues:
    ids = session.ids(split)
    recorded = session.recorded.get(split, {})
    return RowValues(
        ids=ids,
        subjects=tuple(row.subject or name for row, name in zip(session.sets[split], ids, strict=True)),
        metrics={metric: kept.values for metric, kept in recorded.items()},
        texts=session.texts.get(split, {}),
        unscored={metric: kept.unscored for metric, kept in recorded.items() if kept.unscored},
    )


def _cost(session: Session) -> dict[str, float]:
    """The same whether it was paid now or earlier: calls answered from the store count like new ones."""
    cost: dict[str, float] = {"generated_tokens": session.generated_tokens}
    if isinstance(session.judge, PromptedJudge):
        usage = session.judge.asker.usage
        cost |= {
            "judge_calls": usage.replies,
            "judge_prompt_tokens": usage.prompt_tokens,
            "judge_reply_tokens": usage.completion_tokens,
        }
        if usage.usd is not None:
            cost["judge_usd"] = usage.usd
    return cost
