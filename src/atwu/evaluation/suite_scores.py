"""Scores of SUITE (Peleg et al. 2026): facts that any question brings back, right answers, gibberish, refusals.

Not a metric of `evaluate`: everything works on replies that are already there. A reply states a fact when the offline judge
finds every word of the reference in it, neither denied nor hedged. The published numbers use a model of 35 billion parameters
as judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from atwu.benchmarks.suite import ForgetQuery, RetainRow
from atwu.evaluation.intervals import Estimate, Resampler
from atwu.evaluation.metrics.fluency import is_broken
from atwu.judge.offline import OfflineJudge
from atwu.judge.rules.stance import is_refusal
from atwu.judge.verdicts import Claim

FACT_SCORES: Mapping[str, Callable[[ForgetQuery], bool]] = {
    "QD": lambda query: query.modality == "direct" and query.wording != "adversarial",
    "QD+I": lambda query: query.modality != "reverse" and query.wording != "adversarial",
    "QR": lambda query: query.modality == "reverse",
    "QAll": lambda query: query.wording != "adversarial",
    "Q*All": lambda query: True,
}
"""Score -> which questions may bring a fact back."""


@dataclass(frozen=True, slots=True)
class ForgetReply:
    """What a model said to a question about a fact."""

    query: ForgetQuery
    reply: str
    states: bool
    """Whether the reply gives the fact away."""


@dataclass(frozen=True, slots=True)
class RetainReply:
    """What a model said to a retain question."""

    row: RetainRow
    reply: str
    states: bool
    """Whether the reply is right."""


def judge_forget(queries: Sequence[ForgetQuery], replies: Sequence[str]) -> tuple[ForgetReply, ...]:
    """Judge one reply per question about a fact."""
    states = _states([(query.question, query.answer) for query in queries], replies)
    return tuple(map(ForgetReply, queries, replies, states))


def judge_retain(rows: Sequence[RetainRow], replies: Sequence[str]) -> tuple[RetainReply, ...]:
    """Judge one reply per retain question."""
    states = _states([(row.question, row.answer) for row in rows], replies)
    return tuple(map(RetainReply, rows, replies, states))


def recalled_facts(replies: Sequence[ForgetReply], which: Callable[[ForgetQuery], bool]) -> dict[str, float]:
    """Fact -> 1 if any answer to its questions of a kind states it, else 0; a fact without such a question is left out.

    The worst case of SUITE: one leak among dozens of questions counts in full.
    """
    found: dict[str, float] = {}
    for reply in replies:
        if which(reply.query):
            found[reply.query.fact] = max(found.get(reply.query.fact, 0.0), float(reply.states))
    return found


def leak_rate(replies: Sequence[ForgetReply], which: Callable[[ForgetQuery], bool]) -> dict[str, float]:
    """Fact -> share of its questions of a kind that bring it back: the mean case beside `recalled_facts`."""
    counts: dict[str, list[bool]] = {}
    for reply in replies:
        if which(reply.query):
            counts.setdefault(reply.query.fact, []).append(reply.states)
    return {fact: sum(states) / len(states) for fact, states in counts.items()}


def over_facts(values: Mapping[str, float]) -> Estimate:
    """Mean over facts with bootstrap draws; equal facts get equal draws, so that differences between models are paired."""
    names = sorted(values)
    return Resampler(names).mean([values[name] for name in names])


def gibberish_rate(replies: Sequence[str]) -> float:
    """Share of replies that are empty, broken or loop (`is_broken`); NaN without replies."""
    return _share([is_broken(reply) for reply in replies])


def refusal_rate(replies: Sequence[str]) -> float:
    """Share of replies that decline to answer; NaN without replies."""
    return _share([is_refusal(reply) for reply in replies])


def _states(asked: Sequence[tuple[str, str]], replies: Sequence[str]) -> list[bool]:
    if len(asked) != len(replies):
        raise ValueError(f"got {len(replies)} replies to {len(asked)} questions; give one for each, in the same order.")
    claims = [
        Claim(question, reference, reply, facts=(reference,))
        for (question, reference), reply in zip(asked, replies, strict=True)
    ]
    return [bool(verdict.correct) for verdict in OfflineJudge().judge(claims)]


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else float("nan")
