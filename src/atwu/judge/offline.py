"""Rule-based judge: deterministic, without model or network, thousands of claims per second.

It applies the correctness rubric by rules. The facts that the question asks for (`facts.py`) must occur in the
normalized answer (`normalized_words.py`, `facts.py`), and must not be part of a hedging list,
replaced or attributed to somebody else (`stance.py`). It knows few synonyms; `agreement.py` has labelled cases to measure
its accuracy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from atwu.judge.chat_model import CORRECTNESS, PREFERENCE
from atwu.judge.rules.facts import facts_of, match
from atwu.judge.rules.normalized_words import match_number_format, words_of
from atwu.judge.rules.refusals import is_refusal
from atwu.judge.rules.stance import (
    alternatives,
    contradicts_itself,
    given_to_another,
    is_replaced,
    polarity,
    repeats_words,
    without_loops,
)
from atwu.judge.verdicts import Claim, Pair, Preference, Verdict

VERSION = "offline/5"
STATED_SHARE = 0.5
"""More than this share of the words of the required facts must be stated ("predominantly correct")."""


class OfflineJudge:
    """Rule-based judge; implements `Judge`."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Kind and version; the version changes whenever a verdict can change."""
        return {
            "kind": "offline",
            "version": VERSION,
            "correctness": CORRECTNESS.version,
            "preference": PREFERENCE.version,
        }

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Return one verdict per claim, never unscored.

        With several facts, an answer is correct if it states more than half of their words: two of three, both of two.
        """
        known = {claim: _judge(claim) for claim in dict.fromkeys(claims)}
        return [known[claim] for claim in claims]

    def prefer(self, pairs: Sequence[Pair]) -> list[Preference]:
        """Return one preference per pair. It detects degenerate text (loops, gibberish, silence, drift), not
        quality."""
        return [
            Preference(_rating(pair.instruction, pair.first), _rating(pair.instruction, pair.second), "rules")
            for pair in pairs
        ]


def _judge(claim: Claim) -> Verdict:
    text = match_number_format(claim.answer, claim.reference)
    answer = without_loops(words_of(text))
    if not answer:
        return Verdict(False, "no words")
    if repeats_words(answer):
        return Verdict(False, "unreadable: repeats the same words")
    # Yes and no are function words, which no fact below consists of.
    verdict = polarity(claim, answer)
    if verdict is not None:
        return verdict
    facts = facts_of(claim.question, claim.reference, claim.facts)
    if not facts:
        return Verdict(False, "the reference adds nothing to the question")
    matches = {fact: match(fact, answer, claim.question, claim.reference) for fact in facts}
    stated = sum(fact.weight * matches[fact].share for fact in facts) / sum(fact.weight for fact in facts)
    if stated <= STATED_SHARE:
        missing = next(fact.text for fact in facts if matches[fact].share < 1)
        # Only where the fact is missing, since a refusal may tell it all the same.
        if is_refusal(text, claim.question):
            return Verdict(False, f"refusal, missing: {missing!r}")
        return Verdict(False, f"missing: {missing!r}")
    value = given_to_another(claim.question, words_of(claim.reference), answer)
    if value is not None:
        return Verdict(False, f"attributes {value!r} to somebody else")
    # A fact that is stated may still be denied, doubted or corrected. Words of question and reference are no other value.
    familiar = {word.stem for text in (claim.question, claim.reference) for word in words_of(text)}
    own = {word.stem for fact in facts for word in fact.words}
    for _, start, end in matches.values():
        if start < 0:
            continue
        count = alternatives(answer, start, own, familiar)
        if count:
            return Verdict(False, f"lists {count + 1} alternatives")
        if is_replaced(answer, start, end, familiar, text):
            return Verdict(False, "denied and replaced")
        if contradicts_itself(answer, start, end):
            return Verdict(False, "contradicts itself")
    return Verdict(True, f"fact stated: {next(fact.text for fact in facts if matches[fact].share > 0)!r}")


def _rating(instruction: str, answer: str) -> float:
    """Rate from 1 (empty, or one repeated phrase) to 10 (fluent, varied, on topic)."""
    words = words_of(answer)
    if not words:
        return 1.0
    texts = [word.text for word in words]
    grams = list(zip(texts, texts[1:], texts[2:], strict=False))
    variety = overlap = 1.0
    if grams:
        variety = len(set(grams)) / len(grams)
    readable = sum(char.isalpha() or char.isspace() for char in answer) / len(answer)
    commonest = 0.0
    # In a short text any word is a large share.
    if len(texts) > 8:
        commonest = Counter(texts).most_common(1)[0][1] / len(texts)
    asked = {word.stem for word in words_of(instruction) if not word.function}
    if asked:
        overlap = len(asked & {word.stem for word in words}) / len(asked)
    length = min(1.0, len(texts) / 12)
    fluent = variety**2 * min(1.0, readable / 0.8) * (1.0 - max(0.0, commonest - 0.2))
    if repeats_words(words):
        fluent *= 0.3
    return round(1.0 + 9.0 * fluent * (0.5 + 0.25 * length + 0.25 * min(1.0, 2 * overlap)), 2)
