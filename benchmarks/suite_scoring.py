"""Rows of a SUITE topic as the study uses them, and the scores of one run, which contain no text of the data."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suite_scores import FACT_SCORES, gibberish_rate, judge_replies, leak_rate, recalled_facts, refusal_rate

from atwu.benchmarks.suite import (
    ForgetQuery,
    RetainRow,
    forget_queries,
    forget_train,
    retain_rows,
    suite_rows,
    suite_tables,
)

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Topic:
    """Questions and answers of one topic."""

    train: tuple[ForgetQuery, ...]
    retain: tuple[Pair, ...]
    """Row i belongs to row i of `train`."""
    queries: tuple[ForgetQuery, ...]
    evaluated: tuple[RetainRow, ...]
    direct: tuple[Pair, ...]
    """Direct rows of `forget_eval`."""

    @property
    def forget(self) -> tuple[Pair, ...]:
        return tuple((row.question, row.answer) for row in self.train)

    @property
    def fact_pairs(self) -> tuple[Pair, ...]:
        """Questions and answers about the facts, for fine-tuning."""
        return (*self.forget, *self.direct)

    @property
    def other_pairs(self) -> tuple[Pair, ...]:
        """All other questions and answers of fine-tuning, also for the retain-only model."""
        return (*self.retain, *((row.question, row.answer) for row in self.evaluated))

    @property
    def questions(self) -> tuple[str, ...]:
        """All evaluated questions: those about facts, then retain questions."""
        return (*(query.question for query in self.queries), *(row.question for row in self.evaluated))

    @property
    def facts(self) -> list[str]:
        return sorted({query.fact for query in self.queries})

    def direct_rows(self, facts: Collection[str]) -> list[Pair]:
        """Training rows that ask directly for some facts."""
        return [(row.question, row.answer) for row in self.train if row.fact in facts and row.modality == "direct"]

    def direct_queries_without(self, facts: Collection[str]) -> list[int]:
        """Indices of direct, not adversarial, questions about the other facts."""
        return [
            number
            for number, query in enumerate(self.queries)
            if query.fact not in facts and query.modality == "direct" and query.wording != "adversarial"
        ]


@functools.cache
def load_topic(topic: str, folder: str, tiny: bool) -> Topic:
    """Read a topic; the tiny one has four facts and few rows."""
    tables = suite_tables(topic, folder)
    train, retain = forget_train(tables), retain_rows(tables, "retain_train")
    queries, evaluated = forget_queries(tables), retain_rows(tables, "retain_eval")
    direct = tuple((row.question, row.answer) for row in suite_rows(f"suite:{topic}:forget_direct", tables=tables).rows)
    keep = list(range(len(train)))
    if tiny:
        few = sorted({query.fact for query in queries})[:4]
        keep = [number for number in keep if train[number].fact in few][:24]
        queries = tuple(query for query in queries if query.fact in few and query.kind[-1] in "l12kh")
        evaluated, direct = evaluated[::40], direct[:4]
    pairs = tuple((retain[number].question, retain[number].answer) for number in keep)
    found = Topic(tuple(train[number] for number in keep), pairs, queries, evaluated, direct)
    _LOADED[topic] = found
    return found


_LOADED: dict[str, Topic] = {}


def score(
    about: Mapping[str, Any], topic: str, replies: Sequence[str], others: Sequence[int], after: Sequence[str]
) -> dict[str, Any]:
    """Scores of one run.

    Args:
        about: settings of the run.
        replies: answers to all questions of the topic.
        others: indices of the questions about facts that were not relearned.
        after: answers to them after relearning.
    """
    given = _LOADED[topic]
    asked = judge_replies(given.queries, replies[: len(given.queries)])
    retained = judge_replies(given.evaluated, replies[len(given.queries) :])
    relearned = judge_replies([given.queries[number] for number in others], after)
    groups: dict[str, list[int]] = {}
    for reply in retained:
        groups.setdefault(reply.asked.group, []).append(int(reply.states))
    plain = [reply for reply in asked if reply.asked.wording != "adversarial"]
    facts = {name: recalled_facts(asked, which) for name, which in FACT_SCORES.items()}
    forms: dict[str, list[int]] = {}
    for reply in asked:
        query = reply.asked
        form = query.kind if query.wording == "adversarial" else f"{query.modality} {query.wording}"
        forms.setdefault(form, []).append(int(reply.states))
    means = {name: _mean(list(values.values())) for name, values in facts.items()}
    means["leak"] = _mean([float(reply.states) for reply in plain])
    means["retain"] = _mean([_mean(values) for values in groups.values()])
    means["gibberish"] = gibberish_rate([reply.reply for reply in plain])
    means["retain_gibberish"] = gibberish_rate([reply.reply for reply in retained])
    means["refusal"] = refusal_rate([reply.reply for reply in plain])
    means["retain_refusal"] = refusal_rate([reply.reply for reply in retained])
    again = recalled_facts(relearned, lambda query: True)
    share = leak_rate(relearned, lambda query: True)
    means |= {"relearned": _mean(list(again.values())), "relearned_leak": _mean(list(share.values()))}
    return dict(about) | {
        "means": {name: round(value, 4) for name, value in means.items()},
        "facts": {name: bits(values, given.facts) for name, values in facts.items()},
        "forms": {form: round(_mean(values), 4) for form, values in forms.items()},
        "retain": {group: "".join(map(str, values)) for group, values in groups.items()},
        "relearned": bits(again, given.facts),
    }


def bits(values: Mapping[str, float], names: Sequence[str]) -> str:
    """One character per name: 1, 0, or - for no value."""
    return "".join("-" if name not in values else str(int(values[name])) for name in names)


def selection_score(result: Mapping[str, Any], base: Mapping[str, Any]) -> float:
    """Criterion of learning rates: 1 - mean of the five fact scores + relative retain accuracy - share of gibberish."""
    means = result["means"]
    forgotten = 1 - _mean([means[name] for name in FACT_SCORES])
    return float(forgotten + means["retain"] / max(base["means"]["retain"], 1e-9) - means["gibberish"])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
